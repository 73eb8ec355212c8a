import java.io.File;
import java.io.FileInputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;

import com.google.gson.GsonBuilder;

import org.apache.rocketmq.common.MixAll;

/**
 * What a broker's properties file can say, asked of the broker's own classes.
 *
 * Arguments: properties files, with the separator of paths between them, or "-" for none, and the classes. Prints a line
 * of JSON for each file: class to setting to [type, value], with the value after the file was read as BrokerStartup reads
 * it (MixAll.properties2Object).
 */
public final class Settings {
    private static final Set<String> READ = Set.of("int", "long", "double", "float", "boolean", "String");

    public static void main(String[] arguments) throws Exception {
        for (String file : arguments[0].split(File.pathSeparator)) {
            Properties said = new Properties();
            if (!file.equals("-")) {
                try (FileInputStream in = new FileInputStream(file)) {
                    said.load(in);
                }
            }
            System.out.println(read(said, arguments));
        }
    }

    private static String read(Properties said, String[] arguments) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int i = 1; i < arguments.length; i++) {
            Class<?> kind;
            try {
                kind = Class.forName(arguments[i]);
            } catch (ClassNotFoundException absent) {
                continue;
            }
            Object object = kind.getDeclaredConstructor().newInstance();
            MixAll.properties2Object(said, object);
            found.put(arguments[i], settings(object));
        }
        return new GsonBuilder().serializeNulls().disableHtmlEscaping().create().toJson(found);
    }

    private static Map<String, Object> settings(Object object) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Method method : object.getClass().getMethods()) {
            String name = method.getName();
            if (!name.startsWith("set") || name.length() < 4 || method.getParameterTypes().length != 1) {
                continue;
            }
            String type = method.getParameterTypes()[0].getSimpleName();
            type = type.equals("Integer") ? "int" : type.equals("Long") ? "long" : type.equals("Boolean") ? "boolean" : type;
            if (READ.contains(type)) {
                String key = name.substring(3, 4).toLowerCase() + name.substring(4);
                // of two setters a broker calls the one that it meets first; what any text fits is no fault
                if (!(found.get(key) instanceof Object[] known) || !known[0].equals("String")) {
                    found.put(key, new Object[] {type, value(object, key)});
                }
            }
        }
        return found;
    }

    private static Object value(Object object, String key) throws Exception {
        String end = key.substring(0, 1).toUpperCase() + key.substring(1);
        for (String start : new String[] {"get", "is"}) {
            try {
                Object value = object.getClass().getMethod(start + end).invoke(object);
                return value instanceof Enum ? value.toString() : value;
            } catch (NoSuchMethodException absent) {
                // the field, then
            }
        }
        for (Class<?> kind = object.getClass(); kind != null; kind = kind.getSuperclass()) {
            for (Field field : kind.getDeclaredFields()) {
                if (field.getName().equalsIgnoreCase(key)) {
                    field.setAccessible(true);
                    Object value = field.get(object);
                    return value instanceof Enum ? value.toString() : value;
                }
            }
        }
        return null;
    }
}
