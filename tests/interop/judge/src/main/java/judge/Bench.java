package judge;

import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.PutMessageResult;

/** Fills a store with many messages, for measurements. */
final class Bench {
    private static final int DISTINCT_BODIES = 64;
    private static final int DISTINCT_KEYS = 10_000;
    private static final int TAGS = 8;

    static void run(Request request, Map<String, Object> answer) throws Exception {
        Session session = new Session(request);
        if (!session.store.load()) {
            throw new IllegalStateException("load() refuses the store");
        }
        session.start();
        if (request.batch > 0) {
            batches(session, request, answer);
        } else {
            singles(session, request, answer);
        }
        answer.put("state", Open.state(session.store));
        session.stop();
    }

    private static void singles(Session session, Request request, Map<String, Object> answer) throws Exception {
        String[] bodies = bodies(request.bodySize);
        Request.Put put = new Request.Put();
        long begin = System.nanoTime();
        for (long i = 0; i < request.count; i++) {
            put.topic = "bench-" + i % request.topics;
            put.queueId = (int) (i / request.topics % request.queues);
            put.body = bodies[(int) (i % bodies.length)];
            put.tags = "tag-" + i % TAGS;
            put.keys = "key-" + i % DISTINCT_KEYS;
            put.properties = Map.of("UNIQ_KEY", String.format("BENCH%027X", i));
            PutMessageResult result = Release.put(session.store, put);
            while (result.getAppendMessageResult() == null) { // busy: the engine asks to come again
                Thread.sleep(10);
                result = Release.put(session.store, put);
            }
            if (!result.isOk()) {
                throw new IllegalStateException("message " + i + ": " + result);
            }
        }
        answer.put("putSeconds", Open.millisSince(begin) / 1000.0);
        session.awaitDispatch(Long.MAX_VALUE / 2 - System.currentTimeMillis());
        answer.put("seconds", Open.millisSince(begin) / 1000.0);
    }

    /** Batches of one queue each, all of them encoded before the clock starts, as clients do it. */
    private static void batches(Session session, Request request, Map<String, Object> answer) throws Exception {
        String[] texts = bodies(request.bodySize);
        byte[][] bodies = new byte[texts.length][];
        for (int i = 0; i < texts.length; i++) {
            bodies[i] = Base64.getDecoder().decode(texts[i]);
        }
        List<MessageExtBatch> batches = new ArrayList<>();
        for (long i = 0; i < request.count; i += request.batch) {
            List<Message> messages = new ArrayList<>();
            for (long n = i; n < Math.min(i + request.batch, request.count); n++) {
                Message message = new Message();
                message.setBody(bodies[(int) (n % bodies.length)]);
                message.setTags("tag-" + n % TAGS);
                message.setKeys("key-" + n % DISTINCT_KEYS);
                message.putUserProperty("id", String.format("BENCH%027X", n));
                messages.add(message);
            }
            MessageExtBatch batch = new MessageExtBatch();
            Request.Put put = new Request.Put();
            put.topic = "bench-" + i / request.batch % request.topics;
            put.queueId = (int) (i / request.batch / request.topics % request.queues);
            Write.fill(batch, put);
            batch.setBody(MessageDecoder.encodeMessages(messages));
            batches.add(batch);
        }
        long begin = System.nanoTime();
        for (MessageExtBatch batch : batches) {
            PutMessageResult result = session.store.putMessages(batch);
            while (result.getAppendMessageResult() == null) {
                Thread.sleep(10);
                result = session.store.putMessages(batch);
            }
            if (!result.isOk()) {
                throw new IllegalStateException(result.toString());
            }
        }
        answer.put("putSeconds", Open.millisSince(begin) / 1000.0);
        session.awaitDispatch(Long.MAX_VALUE / 2 - System.currentTimeMillis());
        answer.put("seconds", Open.millisSince(begin) / 1000.0);
    }

    /** Half text, half noise, so that they compress about as real bodies do. */
    private static String[] bodies(int size) {
        Random random = new Random(size);
        String[] bodies = new String[DISTINCT_BODIES];
        for (int i = 0; i < bodies.length; i++) {
            byte[] body = new byte[size];
            random.nextBytes(body);
            for (int j = 0; j < size; j += 2) {
                body[j] = (byte) ('a' + j % 26);
            }
            bodies[i] = Base64.getEncoder().encodeToString(body);
        }
        return bodies;
    }

    private Bench() {
    }
}
