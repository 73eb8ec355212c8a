package judge;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What is particular to the broker and the clients of 4.x. */
final class Release {
    static void defaults(MessageStoreConfig config, BrokerConfig broker) {
        // nothing that a test would have to do without
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    private Release() {
    }
}
