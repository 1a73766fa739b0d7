// Puts the answers of the HuggingFace tokenizers library into the questions of make_cases.py.
// Usage: npm install @anush008/tokenizers (a binding of tokenizers 0.22.2), then
//        node answer_cases.js questions.json | gzip -9n > cases.json.gz
// A tokenizer that the library refuses to load gets "refused" instead of answers; a text on which
// it aborts is left out (so each case runs in a process of its own).
const fs = require('fs');
const { spawnSync } = require('child_process');

async function answer({ tokenizer, texts, id_lists }) {
  const { Tokenizer } = require('@anush008/tokenizers');
  let tok;
  try {
    tok = Tokenizer.fromString(JSON.stringify(tokenizer));
  } catch (e) {
    return { refused: String(e.message), texts: [], id_lists: [] };
  }
  for (const x of texts) {
    const ids = (await tok.encode(x.text, null, { addSpecialTokens: false })).getIds();
    const special = (await tok.encode(x.text, null, { addSpecialTokens: true })).getIds();
    x.ids = Array.from(ids);
    x.ids_with_special = Array.from(special);
    x.decoded = await tok.decode(x.ids_with_special, true);
    x.decoded_all = await tok.decode(x.ids_with_special, false);
  }
  for (const x of id_lists) {
    x.decoded = await tok.decode(x.ids, true);
    x.decoded_all = await tok.decode(x.ids, false);
  }
  return { texts, id_lists };
}

function ask(tokenizer, texts, id_lists) {
  const r = spawnSync(process.execPath, [__filename, '--one'],
    { input: JSON.stringify({ tokenizer, texts, id_lists }), maxBuffer: 1 << 26, encoding: 'utf8' });
  if (r.status === 0) return JSON.parse(r.stdout);
  if (texts.length <= 1) return { texts: [], id_lists: [] };
  const half = texts.length >> 1;
  const a = ask(tokenizer, texts.slice(0, half), id_lists), b = ask(tokenizer, texts.slice(half), []);
  return { texts: a.texts.concat(b.texts), id_lists: a.id_lists };
}

if (process.argv[2] === '--one') {
  answer(JSON.parse(fs.readFileSync(0, 'utf8'))).then((r) => fs.writeSync(1, JSON.stringify(r)));
} else {
  const all = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
  all.made_by = 'HuggingFace tokenizers 0.22.2';
  for (const c of all.cases) {
    const t = JSON.parse(JSON.stringify(all.bases[c.base]));
    for (const [k, v] of Object.entries(c.set)) {
      if (k === 'model') Object.assign(t.model, v); else t[k] = v;
    }
    Object.assign(c, ask(t, c.texts, c.id_lists));
  }
  process.stdout.write(JSON.stringify(all) + '\n');
}
