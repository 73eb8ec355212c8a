package judge;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.ParseException;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/** The commands of mqadmin, in this JVM: its own start reads a logging configuration that only an installation has. */
final class Admin {
    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws Exception {
        Field table = Stream.of(MQAdminStartup.class.getDeclaredFields()) // its name depends on the release
            .filter(field -> List.class.isAssignableFrom(field.getType())).findFirst().orElseThrow();
        table.setAccessible(true);
        List<SubCommand> known = (List<SubCommand>) table.get(null);
        known.clear(); // a command keeps its client, and that can be started only once
        MQAdminStartup.initCommand();
        return known;
    }

    static List<String> names() throws Exception {
        return commands().stream().map(SubCommand::commandName).distinct().collect(Collectors.toList());
    }

    /** Runs one command; what it printed, and whether it ended by itself in time. */
    static Map<String, Object> run(String nameServer, JsonObject request) throws Exception {
        List<String> arguments = new ArrayList<>();
        for (JsonElement one : request.getAsJsonArray("arguments")) {
            arguments.add(one.getAsString());
        }
        String name = arguments.remove(0);
        SubCommand command = null;
        for (SubCommand one : commands()) {
            if (one.commandName().equals(name)) {
                command = one;
                break;
            }
        }
        if (command == null) {
            throw new IllegalArgumentException("no command " + name);
        }
        Options options = new Options();
        options.addOption(new Option("h", "help", false, "Print help"));
        options.addOption(new Option("n", "namesrvAddr", true, "Name server address list"));
        CommandLine line;
        try {
            line = new PosixParser().parse(command.buildCommandlineOptions(options), arguments.toArray(new String[0]));
        } catch (ParseException error) {
            return Map.of("said", "usage: " + error.getMessage(), "ended", true, "failed", true);
        }
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream all = new PrintStream(said, true, "UTF-8");
        PrintStream out = System.out;
        PrintStream err = System.err;
        String before = System.getProperty("rocketmq.namesrv.addr");
        System.setProperty("rocketmq.namesrv.addr", nameServer);
        System.setOut(all);
        System.setErr(all);
        SubCommand chosen = command;
        boolean[] failed = new boolean[1];
        Thread running = new Thread(() -> {
            try {
                chosen.execute(line, options, null);
            } catch (Throwable error) {
                failed[0] = true;
                for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                    all.println(cause);
                }
            }
        }, "mqadmin");
        running.setDaemon(true);
        boolean ended;
        try {
            running.start();
            long end = System.nanoTime() + (long) (request.get("seconds").getAsDouble() * 1e9);
            while (running.isAlive() && System.nanoTime() < end) {
                Thread.getAllStackTraces().keySet().stream() // its client would wait for these for up to 3 s at its end
                    .filter(thread -> thread.getName().contains("NettyEventExecutor")).forEach(Thread::interrupt);
                running.join(100);
            }
            ended = !running.isAlive();
            if (!ended) {
                running.interrupt();
                running.join(2000);
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
            if (before == null) {
                System.clearProperty("rocketmq.namesrv.addr");
            } else {
                System.setProperty("rocketmq.namesrv.addr", before);
            }
        }
        return Map.of("said", said.toString(StandardCharsets.UTF_8), "ended", ended, "failed", failed[0]);
    }

    private Admin() {
    }
}
