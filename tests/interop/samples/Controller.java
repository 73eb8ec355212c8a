import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** A controller of 5.3.3, alone in its group: {@code java -cp ... Controller.java FOLDER PORT}; ends with its stdin. */
public final class Controller {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[1]);
        ControllerConfig config = new ControllerConfig();
        config.setControllerDLegerGroup("controllers");
        config.setControllerDLegerSelfId("n0");
        config.setControllerDLegerPeers("n0-127.0.0.1:" + port);
        config.setControllerStorePath(Files.createDirectories(Path.of(arguments[0], "controller")).toString());
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(port);
        System.out.close();
        ControllerManager manager = new ControllerManager(config, server, new NettyClientConfig());
        manager.initialize();
        manager.start();
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }
}
