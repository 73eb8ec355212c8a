import java.lang.annotation.Annotation;
import java.lang.reflect.*;
import java.util.*;

/**
 * Lists the members that the classes behind the configuration files have: class, name in the file, type, default.
 *
 * java -cp 'jars of one version' ListMembers.java CLASS...
 */
public class ListMembers {
    public static void main(String[] args) throws Exception {
        List<String> lines = new ArrayList<>();
        for (String name : args) {
            Class<?> type = Class.forName(name);
            Object fresh = fresh(type);
            for (Class<?> part = type; part != Object.class; part = part.getSuperclass()) {
                for (Field field : part.getDeclaredFields()) {
                    if ((field.getModifiers() & (Modifier.STATIC | Modifier.TRANSIENT)) != 0) continue;
                    field.setAccessible(true);
                    lines.add(String.join("\t", type.getSimpleName(), named(field), field.getGenericType().getTypeName()
                        .replaceAll("[a-z]+\\.|[A-Za-z]+\\$", ""), shown(field.get(fresh))));
                }
            }
        }
        Collections.sort(lines);
        lines.forEach(System.out::println);
    }

    static Object fresh(Class<?> type) throws Exception {
        Constructor<?> shortest = Arrays.stream(type.getDeclaredConstructors())
            .min(Comparator.comparing(Constructor::getParameterCount)).get();
        shortest.setAccessible(true);
        return shortest.newInstance(Arrays.stream(shortest.getParameterTypes())
            .map(part -> part == int.class ? (Object) 0 : part == long.class ? (Object) 0L : null).toArray());
    }

    static String named(Field field) throws Exception {
        for (Annotation annotation : field.getAnnotations()) {
            Object name = annotation.annotationType().getMethod("name").invoke(annotation);
            if (!"".equals(name)) return (String) name;
        }
        return field.getName();
    }

    static String shown(Object value) {
        if (value instanceof long[]) return Arrays.toString((long[]) value);
        if (value instanceof Long && (Long) value > 1_600_000_000_000L) return "now";
        return value == null || value instanceof Number || value instanceof Boolean || value instanceof String
            || value instanceof Enum || value instanceof Map ? String.valueOf(value) : "new";
    }
}
