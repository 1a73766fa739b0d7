#!/usr/bin/python3
"""Trains the fable model from scratch on a corpus of stories.

    tools/train_fable.py CORPUS_DIR OUT_DIR [--minutes 85] [--threads 2] [--resume]

CORPUS_DIR holds train.txt.gz and valid.txt: ASCII prose, a blank line between paragraphs, a line
<|endoftext|> after each story. OUT_DIR receives tokenizer.json, checkpoint.pt (the latest, written
every few minutes with its validation loss) and train.log; tools/fable_export.py turns a checkpoint
into a model directory at any time, also while the training runs.

The learning rate follows the share of --minutes that has passed, not a count of steps, so the run
ends well-annealed at its deadline however busy the machine is. --resume goes on from the last
checkpoint; with the clock of the first start.

Needs Debian's python3-torch and python3-numpy. Runs on the GPU where torch finds one; on the CPU
the gradient comes from fable_cpu.c, which wants a C compiler and libopenblas-dev, unless --torch.
"""

import argparse
import json
import os
import pathlib
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")      # the threads of fable_cpu are enough
import numpy as np
import torch

import fable_bpe
import fable_data
import fable_model
from fable_cpu import CpuTrainer
from fable_optim import Muon

WARMUP_SHARE = 0.02
DECAY_SHARE = 0.55
LONG_SHARE = 0.15        # of the run, at its end, on rows of the full context
SHORT_ROW = 512
MUON_LR = 0.02
ADAM_LR = 3e-3
VALID_ROWS = 24


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("corpus", type=pathlib.Path, help="directory with train.txt.gz and valid.txt")
    p.add_argument("out", type=pathlib.Path, help="directory for tokenizer, checkpoint and log")
    p.add_argument("--minutes", type=float, default=85, help="length of the run")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--batch-tokens", type=int, default=6144, help="tokens in one step")
    p.add_argument("--chat-share", type=float, default=0.2, help="share of rows that are chat")
    p.add_argument("--checkpoint-minutes", type=float, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--torch", action="store_true",
                   help="PyTorch alone, also on the CPU: half as fast, but needs no C compiler")
    p.add_argument("--resume", action="store_true", help="go on from OUT_DIR/checkpoint.pt")
    return p.parse_args()


def rate(share):
    """The factor of the learning rates when this share of the time has passed."""
    if share < WARMUP_SHARE:
        return max(share / WARMUP_SHARE, 0.02)
    return min(1.0, max(0.0, (1.0 - share) / DECAY_SHARE))


def tokenizer(args, stories):
    """The tokenizer of OUT_DIR, learned from the stories where there is none yet."""
    path = args.out / "tokenizer.json"
    if not path.exists():
        merges = fable_bpe.learn(stories, fable_bpe.N_BASE - 256)
        path.write_text(json.dumps(fable_bpe.tokenizer_json(merges), ensure_ascii=False, indent=1)
                        + "\n", encoding="utf-8")
    return fable_bpe.load(path)


def valid_rows(bpe, stories):
    """Openings of the held-out stories: int64 [VALID_ROWS][SHORT_ROW + 1]."""
    rows = [[fable_bpe.BOS] + bpe.encode(s) for s in stories]
    rows = [r[:SHORT_ROW + 1] for r in rows if len(r) > SHORT_ROW]
    return torch.from_numpy(np.array(rows[:VALID_ROWS], np.int64))


def valid_loss(model, cpu, rows, device):
    if cpu:
        return cpu.run(rows, with_gradient=False)
    with torch.no_grad():
        parts = [float(model.loss(r.to(device))) for r in rows.split(4)]
    return sum(parts) / len(parts)


def torch_step(model, ids):
    """Sets the gradients of one batch; returns its loss."""
    for p in model.parameters():
        p.grad = None
    loss = model.loss(ids)
    loss.backward()
    return float(loss)


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    train = fable_data.read_stories(args.corpus / "train.txt.gz")
    bpe = tokenizer(args, train)
    held_out = valid_rows(bpe, fable_data.read_stories(args.corpus / "valid.txt"))
    model = fable_model.Fable().to(device)
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() == 1 or "embed" in n]
    cpu = None if args.torch or device == "cuda" else CpuTrainer(model, args.out, args.threads)
    torch.set_num_threads(1 if cpu else args.threads)
    muon = Muon(matrices, MUON_LR, n_threads=args.threads if cpu else 1)
    adam = torch.optim.AdamW(others, ADAM_LR, betas=(0.9, 0.95), weight_decay=0.0)

    state = {"started": time.time(), "steps": 0, "tokens": 0, "runs": 0}
    path = args.out / "checkpoint.pt"
    if args.resume:
        saved = torch.load(path, map_location=device)
        state = saved["state"]
        state["runs"] += 1
        model.load_state_dict(saved["model"])
        muon.load_state_dict(saved["muon"])
        adam.load_state_dict(saved["adam"])
    corpus = fable_data.Corpus(bpe, train, args.seed + state["runs"], args.chat_share)
    log = open(args.out / "train.log", "a", encoding="utf-8", buffering=1)
    print("device=%s parameters=%d train_tokens=%d" %
          (device, sum(p.numel() for p in model.parameters()), sum(map(len, corpus.ids))), file=log)

    def save():
        state["valid_nats"] = valid_loss(model, cpu, held_out, device)
        partial = path.with_suffix(".partial")
        torch.save({"model": model.state_dict(), "muon": muon.state_dict(),
                    "adam": adam.state_dict(), "state": state}, partial)
        os.replace(partial, path)
        print("checkpoint step=%d tokens=%d minutes=%.1f valid_nats=%.4f" %
              (state["steps"], state["tokens"], (time.time() - state["started"]) / 60,
               state["valid_nats"]), file=log)

    losses, last_save, last_log, log_tokens = [], time.time(), time.time(), 0
    while True:
        share = (time.time() - state["started"]) / (args.minutes * 60)
        if share >= 1.0:
            break
        for optimizer, base in ((muon, MUON_LR), (adam, ADAM_LR)):
            for group in optimizer.param_groups:
                group["lr"] = base * rate(share)
        row = model.shape.context if share > 1.0 - LONG_SHARE else SHORT_ROW
        ids = torch.from_numpy(corpus.rows(max(1, args.batch_tokens // row), row + 1)).to(device)
        loss = cpu.run(ids) if cpu else torch_step(model, ids)
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step()
        adam.step()
        state["steps"] += 1
        state["tokens"] += ids.numel() - len(ids)
        log_tokens += ids.numel() - len(ids)
        losses.append(loss)
        if state["steps"] % 20 == 0:
            now = time.time()
            print("step=%d share=%.3f lr=%.3f train_nats=%.4f tokens_per_s=%.0f" %
                  (state["steps"], share, rate(share), sum(losses) / len(losses),
                   log_tokens / (now - last_log)), file=log)
            losses, last_log, log_tokens = [], now, 0
        if time.time() - last_save > args.checkpoint_minutes * 60:
            save()
            last_save = time.time()
    save()
    print("done", file=log)


if __name__ == "__main__":
    main()
