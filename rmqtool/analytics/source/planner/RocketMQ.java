package rmqtool.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The planner's side of the data source "rocketmq": the Python data source, plus what Spark passes to none that is
 * written in Python. For each scan it narrows the schema to the columns that are used, and gives conditions and limit
 * to the Python reader as the options "pushed" and "limit". Spark checks rows again, so neither changes a result.
 *
 * <p>Only the driver needs this class: batches and readers are those of Spark's own Python data source. It is compiled
 * by Janino (planner.py), which knows neither generics nor lambdas.
 */
public final class RocketMQ implements TableProvider, DataSourceRegister {
    static final String NAME = "rocketmq";

    public String shortName() {
        return NAME;
    }

    public boolean supportsExternalMetadata() {
        return true;
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return python().inferSchema(options);
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new Messages(schema, properties);
    }

    static PythonDataSourceV2 python() {
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(NAME);
        return source;
    }

    static Table pythonTable(StructType schema) {
        return python().getTable(schema, new Transform[0], new HashMap());
    }

    /** A table: of stores, or of a cluster. */
    static final class Messages implements Table, SupportsRead, SupportsWrite {
        private final StructType schema;
        private final Map options; // those that a catalog knows

        Messages(StructType schema, Map options) {
            this.schema = schema;
            this.options = options;
        }

        public String name() {
            return NAME;
        }

        public StructType schema() {
            return schema;
        }

        public Column[] columns() {
            return pythonTable(schema).columns();
        }

        public Set capabilities() {
            return pythonTable(schema).capabilities();
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
            Map all = new HashMap();
            putAll(all, options);
            Metadata metadata = schema.fields()[0].metadata();
            if (metadata.contains(NAME)) { // CREATE TABLE: see tables_source.py
                try {
                    putAll(all, (Map) new ObjectMapper().readValue(metadata.getMetadata(NAME).json(), Map.class));
                } catch (JsonProcessingException e) {
                    throw new IllegalArgumentException(e);
                }
            }
            putAll(all, given.asCaseSensitiveMap());
            return new Builder(schema, all);
        }

        private static void putAll(Map options, Map more) {
            for (Iterator names = more.keySet().iterator(); names.hasNext(); ) {
                String name = (String) names.next();
                options.put(name.toLowerCase(Locale.ROOT), more.get(name));
            }
        }

        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return ((SupportsWrite) pythonTable(schema)).newWriteBuilder(info);
        }
    }

    /** Plans one scan; nothing of it is shared with another scan, even of the same frame. */
    static final class Builder
            implements SupportsPushDownFilters, SupportsPushDownRequiredColumns, SupportsPushDownLimit {
        private final StructType whole;
        private final Map options;
        private StructType schema;

        Builder(StructType schema, Map options) {
            this.whole = schema;
            this.schema = schema;
            this.options = options;
        }

        public Filter[] pushFilters(Filter[] filters) {
            List pushed = new ArrayList();
            for (int i = 0; i < filters.length; i++) {
                List condition = condition(filters[i]);
                if (condition != null) {
                    pushed.add(condition);
                }
            }
            if (!pushed.isEmpty()) {
                try {
                    options.put("pushed", new ObjectMapper().writeValueAsString(pushed));
                } catch (JsonProcessingException e) {
                    return filters; // they are applied by Spark alone
                }
            }
            return filters;
        }

        public Filter[] pushedFilters() {
            return new Filter[0];
        }

        public void pruneColumns(StructType required) {
            StructField[] fields = new StructField[required.fields().length];
            for (int i = 0; i < fields.length; i++) {
                // whole, also if only a field of it is used: whether a body fits its schema depends on all of it
                fields[i] = whole.fields()[whole.fieldIndex(required.fields()[i].name())];
            }
            if (fields.length == 0) { // count(*)
                StructField cheapest = whole.fields()[0];
                for (int i = 0; i < whole.fields().length; i++) {
                    if (whole.fields()[i].name().equals("queueId")) {
                        cheapest = whole.fields()[i];
                    }
                }
                fields = new StructField[] {cheapest};
            }
            schema = new StructType(fields);
        }

        public boolean pushLimit(int limit) {
            options.put("limit", Integer.toString(limit));
            return true;
        }

        public boolean isPartiallyPushed() {
            return true;
        }

        public Scan build() {
            CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(options);
            Scan scan = ((SupportsRead) pythonTable(schema)).newScanBuilder(all).build();
            return new MessageScan(scan, options);
        }

        private static List condition(Filter filter) {
            if (filter instanceof EqualTo) {
                return condition(((EqualTo) filter).attribute(), "=", ((EqualTo) filter).value());
            }
            if (filter instanceof LessThan) {
                return condition(((LessThan) filter).attribute(), "<", ((LessThan) filter).value());
            }
            if (filter instanceof LessThanOrEqual) {
                return condition(((LessThanOrEqual) filter).attribute(), "<=", ((LessThanOrEqual) filter).value());
            }
            if (filter instanceof GreaterThan) {
                return condition(((GreaterThan) filter).attribute(), ">", ((GreaterThan) filter).value());
            }
            if (filter instanceof GreaterThanOrEqual) {
                return condition(
                        ((GreaterThanOrEqual) filter).attribute(), ">=", ((GreaterThanOrEqual) filter).value());
            }
            if (filter instanceof In) {
                return condition(((In) filter).attribute(), "in", ((In) filter).values());
            }
            return null;
        }

        private static List condition(String column, String op, Object value) {
            Object plain = plain(value);
            return plain == null ? null : Arrays.asList(new Object[] {column, op, plain});
        }

        /** The value for JSON; null if Python has no use for it. Times are [microseconds since the epoch]. */
        private static Object plain(Object value) {
            if (value instanceof String || value instanceof Integer || value instanceof Long) {
                return value;
            }
            if (value instanceof Timestamp) {
                return plain(((Timestamp) value).toInstant());
            }
            if (value instanceof Instant) {
                Instant time = (Instant) value;
                long micros = time.getEpochSecond() * 1000000L + time.getNano() / 1000;
                return new long[] {micros};
            }
            if (value instanceof Object[]) {
                Object[] values = (Object[]) value;
                Object[] all = new Object[values.length];
                for (int i = 0; i < values.length; i++) {
                    all[i] = plain(values[i]);
                    if (all[i] == null) {
                        return null;
                    }
                }
                return all;
            }
            return null;
        }
    }

    /** A scan of Spark's Python data source, with its size. */
    static final class MessageScan implements SupportsReportStatistics {
        private final Scan scan;
        private final Map options;
        private Statistics statistics;

        MessageScan(Scan scan, Map options) {
            this.scan = scan;
            this.options = options;
        }

        public synchronized Statistics estimateStatistics() {
            if (statistics == null) {
                Map asked = new HashMap(options);
                asked.put("statistics", "true");
                StructType answer = python().inferSchema(new CaseInsensitiveStringMap(asked));
                Metadata metadata = answer.fields()[0].metadata();
                OptionalLong none = OptionalLong.empty();
                statistics = new Size(metadata.contains("bytes") ? OptionalLong.of(metadata.getLong("bytes")) : none);
            }
            return statistics;
        }

        public StructType readSchema() {
            return scan.readSchema();
        }

        public String description() {
            return scan.description();
        }

        public Batch toBatch() {
            return scan.toBatch();
        }

        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return scan.toMicroBatchStream(checkpoint);
        }

        public CustomMetric[] supportedCustomMetrics() {
            return scan.supportedCustomMetrics();
        }

        public CustomTaskMetric[] reportDriverMetrics() {
            return scan.reportDriverMetrics();
        }
    }

    static final class Size implements Statistics {
        private final OptionalLong bytes;

        Size(OptionalLong bytes) {
            this.bytes = bytes;
        }

        public OptionalLong sizeInBytes() {
            return bytes;
        }

        public OptionalLong numRows() {
            return OptionalLong.empty();
        }
    }

    /** Tables by path or URI, read only: SELECT ... FROM rocketmq.`/data/store`. */
    public static final class Catalog implements TableCatalog {
        private String name = NAME;

        public void initialize(String name, CaseInsensitiveStringMap options) {
            this.name = name;
        }

        public String name() {
            return name;
        }

        public Identifier[] listTables(String[] namespace) {
            return new Identifier[0];
        }

        public Table loadTable(Identifier table) {
            Map options = new HashMap();
            options.put("path", table.name());
            return new Messages(python().inferSchema(new CaseInsensitiveStringMap(options)), options);
        }

        public Table createTable(Identifier table, StructType schema, Transform[] partitions, Map properties) {
            throw new UnsupportedOperationException("tables of " + name + " are stores and clusters: none is created");
        }

        public Table alterTable(Identifier table, TableChange[] changes) {
            throw new UnsupportedOperationException("tables of " + name + " are stores and clusters: none is changed");
        }

        public boolean dropTable(Identifier table) {
            throw new UnsupportedOperationException("tables of " + name + " are stores and clusters: none is dropped");
        }

        public void renameTable(Identifier table, Identifier other) {
            throw new UnsupportedOperationException("tables of " + name + " are stores and clusters: none is renamed");
        }
    }
}
