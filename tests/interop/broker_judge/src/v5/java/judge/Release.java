package judge;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** What is particular to the broker and the clients of 5.x. */
final class Release {
    static void defaults(MessageStoreConfig config, BrokerConfig broker) {
        config.setTimerWheelEnable(false); // timer messages of any delay; those with a level go the way of 4.x
        broker.setTransactionOpBatchInterval(50); // ms, for what ends half messages to be seen in the store soon
    }

    static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    private Release() {
    }
}
