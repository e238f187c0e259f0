// A client of Liana from end to end, from the .proto files alone: likes, counts, pages,
// tokens, counters and retries. docs/clients.md walks through it.
//
//   node likes.js [ADDR]
"use strict";

const crypto = require("node:crypto");
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

// The folder proto/ of Liana's repository; in a service of your own, a copy of it.
const protos = path.join(__dirname, "../../../proto");

const definition = loader.loadSync(["liana/v1/graph.proto", "liana/v1/counters.proto"], {
  includeDirs: [protos],
  keepCase: true, // page_size, as everywhere in Liana
  longs: String, // 64-bit numbers do not fit a number
  enums: String,
  defaults: true,
});
const { Graph, Counters } = grpc.loadPackageDefinition(definition).liana.v1;

const address = process.argv[2] || "127.0.0.1:7400";
const graph = new Graph(address, grpc.credentials.createInsecure());
const counters = new Counters(address, grpc.credentials.createInsecure());

// call makes a promise of a unary call, with a deadline.
function call(client, method, request) {
  return new Promise((resolve, reject) => {
    client[method](request, { deadline: Date.now() + 5000 }, (err, answer) => (err ? reject(err) : resolve(answer)));
  });
}

// mayRepeat are the codes under which the same call may succeed later. Edge writes, reads
// and increments with a request id may be repeated even when their outcome is unknown.
const mayRepeat = new Set([
  grpc.status.UNAVAILABLE, grpc.status.UNKNOWN, grpc.status.ABORTED, grpc.status.RESOURCE_EXHAUSTED,
]);

async function retry(attempt, tries = 10) {
  for (let i = 1; ; i++) {
    try {
      return await attempt();
    } catch (err) {
      if (!mayRepeat.has(err.code) || i === tries) throw err;
      // Clients that failed together come back apart.
      await new Promise((resolve) => setTimeout(resolve, 50 * 2 ** Math.min(i, 6) * (0.5 + Math.random())));
    }
  }
}

const user = (id) => ({ type: "user", id });
const note = (id) => ({ type: "note", id });

async function edges() {
  let token = ""; // what the last write has seen
  for (let id = 201; id <= 205; id++) {
    const added = await retry(() => call(graph, "AddEdge", { edge: { src: user(id), type: "like", dst: note(11) } }));
    token = added.token;
  }
  // With the token a read is at least as fresh as the write, at any node.
  const consistency = { token };

  const has = await call(graph, "HasEdges", { type: "like", src_ids: [205], dst_ids: [11, 12], consistency });
  console.log("user 205 likes notes 11 and 12:", has.exists.join(" "));

  const likes = { vertex: note(11), type: "like", direction: "IN", consistency };
  const { count } = await call(graph, "CountEdges", likes);
  console.log("likes of note 11:", count);

  let page_token = "";
  do {
    const page = await call(graph, "ListEdges", { ...likes, order: "OLDEST_FIRST", page_size: 2, page_token });
    console.log("page of users:", page.edges.map((e) => e.src.id).join(" "));
    page_token = page.next_page_token;
  } while (page_token !== "");

  // The largest id there is goes through unharmed.
  const last = "18446744073709551614";
  await retry(() => call(graph, "AddEdge", { edge: { src: user(last), type: "like", dst: note(11) } }));
  const got = await call(graph, "GetEdge", { src: user(last), type: "like", dst: note(11) });
  console.log("liked by user", got.edge.src.id);
}

async function count() {
  // With a request id a repeated call counts once.
  const request_id = crypto.randomUUID();
  const increment = { counter: { key: "example:" + request_id }, delta: 3 };
  for (let i = 0; i < 2; i++) { // the second time is what a retry would do
    const sum = await retry(() => call(counters, "IncrBy", { increment, request_id }));
    console.log("counter:", sum.value);
  }
}

edges()
  .then(count)
  .catch((err) => {
    console.error(err.message);
    process.exitCode = 1;
  })
  .finally(() => {
    graph.close();
    counters.close();
  });
