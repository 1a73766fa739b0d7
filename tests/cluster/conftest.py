from grpc_client import alone, split  # noqa: F401
from shared_clusters import pair, pki, tls_pair, tls_whole, whole  # noqa: F401
