// The engine's state, rebuilt from its events: minillm/replay.py in JavaScript. Knows nothing of the page.

export class EngineState {
  constructor(snapshot) {
    this.restart(snapshot);
  }

  restart(snapshot) {
    const { seq, step, time, engine, queue, named, running } = snapshot;
    Object.assign(this, { seq, step, time, engine, queue });
    this.named = new Set(named);
    this.requests = new Map(); // id -> {num_prompt_tokens, num_tokens, num_computed_tokens, block_ids}
    this.holders = Array.from({ length: engine.num_blocks }, () => []); // block -> ids of the requests that hold it
    this.changed = new Set(); // blocks that look different since whoever draws them last cleared this
    for (const { id, block_ids, ...request } of running) {
      this.requests.set(id, { ...request, block_ids: [] });
      this.setTable(id, { from: 0, ids: block_ids });
    }
  }

  // Throws if an event is missing before this one.
  apply(event) {
    if (event.type === "snapshot") return this.restart(event);
    if (event.seq !== this.seq + 1) throw new Error(`event ${event.seq} follows event ${this.seq}: one is missing`);
    this.seq = event.seq;
    this.time = event.time;
    this.step = event.step ?? this.step;
    this.queue = event.queue;
    this.applyBlocks(event.kv);
    for (const item of event.scheduled ?? []) {
      const request = this.requests.get(item.id); // undefined: it ended in this step
      if (!request) continue;
      request.num_prompt_tokens = item.num_prompt_tokens;
      request.num_tokens = item.num_tokens + item.num_sampled_tokens;
      request.num_computed_tokens = item.num_computed_tokens + item.num_new_tokens;
    }
  }

  applyBlocks({ released, tables, named, forgotten }) {
    for (const id of released) {
      this.setTable(id, { from: 0, ids: [] });
      this.requests.delete(id);
    }
    for (const [id, change] of Object.entries(tables)) {
      if (!this.requests.has(id)) this.requests.set(id, { num_prompt_tokens: 0, num_tokens: 0, num_computed_tokens: 0, block_ids: [] });
      this.setTable(id, change);
    }
    for (const block of forgotten) this.named.delete(block);
    for (const block of named) this.named.add(block);
    for (const block of [...forgotten, ...named]) this.changed.add(block);
  }

  setTable(id, { from, ids }) {
    const table = this.requests.get(id).block_ids;
    for (const block of table.splice(from)) {
      this.holders[block].splice(this.holders[block].indexOf(id), 1);
      this.changed.add(block);
    }
    for (const block of ids) {
      table.push(block);
      this.holders[block].push(id);
      this.changed.add(block);
    }
  }

  // Counts of blocks: held by somebody, by more than one, free but still findable, free.
  count() {
    let held = 0;
    let shared = 0;
    for (const ids of this.holders) {
      held += ids.length > 0;
      shared += ids.length > 1;
    }
    let cached = 0;
    for (const block of this.named) cached += this.holders[block].length === 0;
    return { held, shared, cached, free: this.holders.length - held };
  }
}
