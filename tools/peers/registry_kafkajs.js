// Does what each line of its input says, with @kafkajs/confluent-schema-registry: a line is JSON,
// and so is the line that responds to it.
const { createInterface } = require("readline");
const { SchemaRegistry } = require("@kafkajs/confluent-schema-registry");

const registry = new SchemaRegistry({ host: process.env.REGISTRY_URL }, { PROTOBUF: {} });

const operations = {
  register: ({ subject, schema }) => registry.register(schema, { subject }),
  latest: ({ subject }) => registry.getLatestSchemaId(subject),
  found: ({ subject, schema }) => registry.getRegistryIdBySchema(subject, schema),
  encode: async ({ id, value }) => (await registry.encode(id, value)).toString("hex"),
  decode: ({ hex }) => registry.decode(Buffer.from(hex, "hex")),
};

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    try {
      console.log(JSON.stringify({ result: await operations[order.operation](order) }));
    } catch (error) {
      console.log(JSON.stringify({ error: String(error) }));
    }
  }
}

main();
