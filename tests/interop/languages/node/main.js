// Produces and consumes with a client for Node: sends, tags, one message that is handled twice.
'use strict';
const { Producer, Consumer, Message } = require('ali-ons');
const httpclient = { request() { throw new Error('no'); } };
const nameSrv = process.argv[2], count = +process.argv[3];
const base = { httpclient, accessKeyId: 'a', accessKeySecret: 's', accessKey: 'a', secretKey: 's', nameSrv, namespace: '', logger: { info(){}, warn: console.error, error: console.error, debug(){} } };
(async () => {
  const producer = new Producer({ ...base, producerGroup: 'producing' });
  producer.on('error', e => console.error('P', e));
  await producer.ready();
  for (let i = 0; i < count; i++) {
    const m = new Message('Spoken', i % 2 ? 'b' : 'a', 'm' + i); m.keys = ['k' + i];
    const r = await producer.send(m);
    if (r.sendStatus !== 'SEND_OK') throw new Error(JSON.stringify(r));
  }
  console.log('sent', count);
  const seen = {};
  const consumer = new Consumer({ ...base, consumerGroup: 'consuming', consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
  consumer.on('error', e => console.error('C', e.message));
  consumer.subscribe('Spoken', 'a', async msg => {
    const b = msg.body.toString(); seen[b] = (seen[b] || 0) + 1;
    if (b === 'm0' && seen[b] === 1) throw new Error('later');
  });
  await consumer.ready();
  for (let i = 0; i < 400; i++) {
    if (Object.keys(seen).length === count / 2 && seen.m0 >= 2) break;
    await new Promise(r => setTimeout(r, 100));
  }
  console.log('seen', Object.keys(seen).length, 'm0', seen.m0);
  await consumer.close(); await producer.close(); process.exit(0);
})().catch(e => { console.error(e); process.exit(1); });
