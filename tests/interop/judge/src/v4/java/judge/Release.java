package judge;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is particular to the store of 4.9. */
final class Release {
    static void defaults(MessageStoreConfig config) {
    }

    static DefaultMessageStore construct(MessageStoreConfig config, BrokerConfig broker) throws Exception {
        return new DefaultMessageStore(config, new BrokerStatsManager("judge", false), null, broker);
    }

    /** The schedule service lives in the store and would append the messages that are due, a second after start(). */
    static void stopDelivery(DefaultMessageStore store) {
        Thread.currentThread().interrupt(); // do not wait for its timers: they find it stopped
        store.getScheduleMessageService().shutdown();
        Thread.interrupted();
    }

    static List<ConsumeQueue> queues(DefaultMessageStore store) {
        List<ConsumeQueue> queues = new ArrayList<>();
        for (Map<Integer, ConsumeQueue> ofTopic : store.getConsumeQueueTable().values()) {
            queues.addAll(ofTopic.values());
        }
        return queues;
    }

    static PutMessageResult put(DefaultMessageStore store, Request.Put put) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        Write.fill(message, put);
        message.setPropertiesString(put.propertiesString != null
            ? put.propertiesString : MessageDecoder.messageProperties2String(message.getProperties()));
        return store.putMessage(message);
    }

    static void settle(DefaultMessageStore store) {
        // all that is dispatched is in the queues at once
    }

    static List<Map<String, Object>> otherQueues(DefaultMessageStore store) {
        return new ArrayList<>();
    }

    static List<Map<String, Object>> otherEntries(DefaultMessageStore store) {
        return new ArrayList<>();
    }

    /** Commands that only one release has. */
    static void run(Request request, Map<String, Object> answer) {
        throw new IllegalArgumentException("no such command: " + request.command);
    }

    private Release() {
    }
}
