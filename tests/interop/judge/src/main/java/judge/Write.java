package judge;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;

/** Puts messages into a new or an existing store. */
final class Write {
    static void run(Request request, Map<String, Object> answer) throws Exception {
        Session session = new Session(request);
        boolean loaded = session.store.load();
        answer.put("loadOk", loaded);
        if (!loaded) {
            return;
        }
        session.start();
        puts(session, request, answer);
        if (!request.kill) {
            session.stop();
        }
    }

    static void puts(Session session, Request request, Map<String, Object> answer) throws Exception {
        List<Map<String, Object>> results = new ArrayList<>();
        answer.put("results", results);
        for (Request.Put put : request.puts) {
            Thread.sleep(put.pauseMillis);
            results.add(result(put(session, put)));
        }
        session.awaitDispatch(request.startTimeoutMillis);
        answer.put("state", Open.state(session.store));
    }

    private static PutMessageResult put(Session session, Request.Put put) throws Exception {
        if (put.batch == null) {
            return Release.put(session.store, put);
        }
        List<Message> messages = new ArrayList<>();
        for (Request.Put part : put.batch) {
            Message message = new Message();
            common(message, part);
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        fill(batch, put);
        batch.setBody(MessageDecoder.encodeMessages(messages));
        return session.store.putMessages(batch);
    }

    /** All of a message except what only the classes of one release have. */
    static void fill(MessageExt message, Request.Put put) throws Exception {
        common(message, put);
        message.setTopic(put.topic);
        message.setQueueId(put.queueId);
        message.setSysFlag(put.sysFlag);
        message.setBornTimestamp(put.bornTimestamp == null ? System.currentTimeMillis() : put.bornTimestamp);
        message.setBornHost(address(put.bornHost));
        message.setStoreHost(address(put.storeHost));
        message.setReconsumeTimes(put.reconsumeTimes);
        message.setPreparedTransactionOffset(put.preparedTransactionOffset);
    }

    private static void common(Message message, Request.Put put) {
        message.setBody(put.body == null ? null : Base64.getDecoder().decode(put.body));
        message.setFlag(put.flag);
        MessageAccessor.setProperties(message, new LinkedHashMap<>(put.properties));
        if (put.tags != null) {
            message.setTags(put.tags);
        }
        if (put.keys != null) {
            message.setKeys(put.keys);
        }
        if (put.delayLevel > 0) {
            message.setDelayTimeLevel(put.delayLevel);
        }
    }

    private static InetSocketAddress address(String text) throws Exception {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(InetAddress.getByName(text.substring(0, colon)),
            Integer.parseInt(text.substring(colon + 1)));
    }

    private static Map<String, Object> result(PutMessageResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getPutMessageStatus().name());
        AppendMessageResult append = result.getAppendMessageResult();
        if (append != null) {
            row.put("appendStatus", append.getStatus().name());
            row.put("wroteOffset", append.getWroteOffset());
            row.put("wroteBytes", append.getWroteBytes());
            row.put("msgId", append.getMsgId());
            row.put("storeTimestamp", append.getStoreTimestamp());
            row.put("logicsOffset", append.getLogicsOffset());
            row.put("msgNum", append.getMsgNum());
        }
        return row;
    }

    private Write() {
    }
}
