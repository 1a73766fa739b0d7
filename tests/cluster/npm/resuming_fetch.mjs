// A fetch for the clients of OpenAI, Anthropic and others that take one. bases: the coordinators ("http://10.0.0.1:1025"), which it asks
// in turns until one answers. A stream that breaks goes on behind its last event; who reads it notices nothing but a pause.
export const resumingFetch = (bases, patienceMs = 60_000) => async (url, init = {}) => {
  const { pathname, search } = new URL(url);
  const open = async (last) => {
    const until = Date.now() + patienceMs;
    for (let i = 0; ; i++) {
      const headers = new Headers(init.headers);
      if (last !== null) headers.set('Last-Event-ID', last);
      try {
        const r = await fetch(bases[i % bases.length] + pathname + search, { ...init, headers });
        if (r.status !== 503 || Date.now() > until) return r;
      } catch (e) {
        if (init.signal?.aborted || Date.now() > until) throw e;
      }
      await new Promise((done) => setTimeout(done, 100));
    }
  };
  const first = await open(null);
  if (!first.headers.get('content-type')?.startsWith('text/event-stream')) return first;
  async function* events() {
    let last = null;
    for (let r = first; ; r = await open(last)) {
      if (r.status !== 200) throw new Error(`the stream is lost: ${r.status} ${await r.text()}`);
      let text = '';
      try {
        for await (const bytes of r.body.pipeThrough(new TextDecoderStream())) {
          text += bytes;
          const whole = text.slice(0, text.lastIndexOf('\n\n') + 2);
          if (!whole.endsWith('\n\n')) continue; // part of an event: it would come again
          text = text.slice(whole.length);
          last = [...whole.matchAll(/^id: (.*)$/gm)].at(-1)?.[1] ?? last;
          yield whole;
        }
        return;
      } catch (e) {
        if (last === null || init.signal?.aborted) throw e; // without ids nobody can go on
      }
    }
  }
  return new Response(ReadableStream.from(events()).pipeThrough(new TextEncoderStream()), first);
};
