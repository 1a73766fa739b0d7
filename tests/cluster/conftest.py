from grpc_client import alone, split  # noqa: F401
from shared_clusters import embed, pair, pki, tls_pair, tls_whole, whole  # noqa: F401
