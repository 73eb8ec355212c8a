// The official Node client for gRPC: sends messages and receives them; prints JSON.

const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

async function main() {
  const [endpoints, count] = [process.argv[2], Number(process.argv[3])];
  const producer = new Producer({ endpoints, topics: ['Plain'] });
  await producer.startup();
  for (let number = 0; number < count; number++) {
    await producer.send({ topic: 'Plain', tag: 't', keys: [`k${number}`], body: Buffer.from(String(number)) });
  }
  const consumer = new SimpleConsumer({
    endpoints, consumerGroup: 'node-group', subscriptions: new Map().set('Plain', '*'), awaitDuration: 3000,
  });
  await consumer.startup();
  const got = new Set();
  const end = Date.now() + 60000;
  while (got.size < count && Date.now() < end) {
    for (const message of await consumer.receive(32, 20000)) {
      got.add(message.body.toString());
      await consumer.ack(message);
    }
  }
  await consumer.shutdown();
  await producer.shutdown();
  console.log(JSON.stringify({ sent: count, received: got.size }));
  process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
