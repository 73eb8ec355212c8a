package org.apache.rocketmq.test.base;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.out.BrokerOuterAPI;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

/**
 * Brokers and a name server that run elsewhere, in the place of those that BaseConf starts in this JVM.
 *
 * What tests ask of the objects of a broker is asked over the wire, and what they set there is set by updateBrokerConfig.
 * Anything else throws {@link Inside}: such a test cannot be judged from outside.
 */
public final class Served {
    /** HOST:PORT of the name server; without it BaseConf starts real brokers. */
    public static final String NAMESRV = System.getProperty("served.namesrv");
    /** HOST:PORT of each broker, in the order of their names. */
    private static final String[] BROKERS = System.getProperty("served.brokers", "").split(",");
    private static final AtomicInteger INDEX = new AtomicInteger();
    private static DefaultMQAdminExt asking;

    private Served() {
    }

    /** A test looks into a broker. */
    public static final class Inside extends UnsupportedOperationException {
        Inside(InvocationOnMock call) {
            super(call.getMethod().getDeclaringClass().getSimpleName() + "." + call.getMethod().getName());
        }
    }

    static NamesrvController nameServer() {
        NettyServerConfig port = new NettyServerConfig();
        port.setListenPort(Integer.parseInt(NAMESRV.split(":")[1]));
        NamesrvConfig config = settings(NamesrvConfig.class, new NamesrvConfig(),
            (admin, values) -> admin.updateNameServerConfig(values, java.util.List.of(NAMESRV)));
        return made(NamesrvController.class, call -> {
            switch (call.getMethod().getName()) {
                case "getNettyServerConfig":
                    return port;
                case "getNamesrvConfig":
                    return config;
                default:
                    throw new Inside(call);
            }
        });
    }

    static BrokerController broker() {
        String address = BROKERS[INDEX.getAndIncrement()];
        BrokerConfig own = new BrokerConfig();
        own.setBrokerName(IntegrationTestBase.BROKER_NAME_PREFIX + INDEX.get());
        own.setListenPort(Integer.parseInt(address.split(":")[1]));
        BrokerConfig config =
            settings(BrokerConfig.class, own, (admin, values) -> admin.updateBrokerConfig(address, values));
        DefaultMessageStore store = made(DefaultMessageStore.class, call -> {
            switch (call.getMethod().getName()) {
                case "dispatchBehindBytes":
                    return 0L; // messages are dispatched before they are acknowledged
                case "getMaxOffsetInQueue":
                    return asked(admin -> admin.maxOffset(queue(call, own)));
                case "getMinOffsetInQueue":
                    return asked(admin -> admin.minOffset(queue(call, own)));
                default:
                    throw new Inside(call);
            }
        });
        TopicConfigManager topics = made(TopicConfigManager.class, call -> {
            switch (call.getMethod().getName()) {
                case "updateTopicConfig":
                    asked(admin -> {
                        admin.createAndUpdateTopicConfig(address, (TopicConfig) call.getArgument(0));
                        return null;
                    });
                    return null;
                case "getTopicConfigTable":
                    return asked(admin -> admin.getAllTopicConfig(address, 10_000).getTopicConfigTable());
                default:
                    throw new Inside(call);
            }
        });
        ConsumerOffsetManager offsets = made(ConsumerOffsetManager.class, call -> {
            if (!call.getMethod().getName().equals("queryOffset") || call.getArguments().length != 3) {
                throw new Inside(call);
            }
            MessageQueue queue = new MessageQueue(call.getArgument(1), own.getBrokerName(), call.getArgument(2));
            return asked(admin -> admin.examineConsumeStats(call.getArgument(0), call.<String>getArgument(1))
                .getOffsetTable().get(queue).getConsumerOffset());
        });
        BrokerOuterAPI outer = made(BrokerOuterAPI.class, call -> null);
        return made(BrokerController.class, call -> {
            switch (call.getMethod().getName()) {
                case "getBrokerConfig":
                    return config;
                case "getBrokerAddr":
                    return address;
                case "getMessageStore":
                    return store;
                case "getTopicConfigManager":
                    return topics;
                case "getConsumerOffsetManager":
                    return offsets;
                case "getBrokerOuterAPI":
                    return outer;
                case "registerBrokerAll":
                    return null; // the settings of a topic are registered when they change
                default:
                    throw new Inside(call);
            }
        });
    }

    private static MessageQueue queue(InvocationOnMock call, BrokerConfig broker) {
        return new MessageQueue(call.getArgument(0), broker.getBrokerName(), call.getArgument(1));
    }

    private static <T> T made(Class<T> kind, Answer<?> answer) {
        return mock(kind, withSettings().stubOnly().defaultAnswer(call -> {
            switch (call.getMethod().getName()) {
                case "toString":
                case "hashCode":
                case "equals":
                case "finalize":
                    return org.mockito.Mockito.RETURNS_DEFAULTS.answer(call);
                default:
                    return answer.answer(call);
            }
        }));
    }

    /** Settings that know what a test has set, and tell it to the server. */
    private static <T> T settings(Class<T> kind, T own, Change change) {
        return made(kind, call -> {
            Method method = call.getMethod();
            Object value;
            try {
                value = method.invoke(own, call.getArguments());
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
            if (method.getName().startsWith("set")) {
                Properties all = MixAll.object2Properties(own);
                String name = Character.toLowerCase(method.getName().charAt(3)) + method.getName().substring(4);
                Properties changed = new Properties();
                changed.setProperty(name, all.getProperty(name));
                asked(admin -> {
                    change.apply(admin, changed);
                    return null;
                });
            }
            return value;
        });
    }

    private interface Change {
        void apply(DefaultMQAdminExt admin, Properties values) throws Exception;
    }

    private interface Question<T> {
        T ask(DefaultMQAdminExt admin) throws Exception;
    }

    private static synchronized <T> T asked(Question<T> question) throws Exception {
        if (asking == null) {
            asking = new DefaultMQAdminExt();
            asking.setInstanceName(UUID.randomUUID().toString());
            asking.setNamesrvAddr(NAMESRV);
            asking.start();
        }
        return question.ask(asking);
    }
}
