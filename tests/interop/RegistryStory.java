// Confluent's registry client for Java against a registry. The steps are in the order of `main`; a
// failed one ends the program with an exception. It reads a framed Avro value and writes one.

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.CompatibilityLevel;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumReader;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericDatumWriter;
import org.apache.flink.avro.shaded.org.apache.avro.io.DecoderFactory;
import org.apache.flink.avro.shaded.org.apache.avro.io.EncoderFactory;

public class RegistryStory {
  static final String CITY =
      "{\"type\":\"record\",\"name\":\"City\",\"namespace\":\"p\",\"fields\":"
          + "[{\"name\":\"name\",\"type\":\"string\"}]}";
  static final String ORDER =
      "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"p\",\"fields\":"
          + "[{\"name\":\"id\",\"type\":\"int\"},{\"name\":\"home\",\"type\":\"p.City\"}]}";
  static final String INCOMPATIBLE = "{\"type\":\"record\",\"name\":\"Order\",\"namespace\":\"p\","
      + "\"fields\":[{\"name\":\"at\",\"type\":\"long\"}]}";

  static void expect(Object expected, Object found) {
    if (!expected.equals(found)) {
      throw new AssertionError("expected " + expected + ", found " + found);
    }
  }

  interface Step {
    void run() throws Exception;
  }

  static void refused(int code, Step step) throws Exception {
    try {
      step.run();
    } catch (RestClientException refused) {
      expect(code, refused.getErrorCode());
      return;
    }
    throw new AssertionError("expected error " + code);
  }

  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    CachedSchemaRegistryClient client = new CachedSchemaRegistryClient(url, 100);
    int cityId = client.register("java-city", new AvroSchema(CITY));
    List<SchemaReference> references = List.of(new SchemaReference("p.City", "java-city", 1));
    AvroSchema order = new AvroSchema(ORDER, references, Map.of("p.City", CITY), null);
    int id = client.register("java-value", order);
    expect(id, client.getId("java-value", order));
    expect(1, client.getVersion("java-value", order));
    expect(List.of(1), client.getAllVersions("java-value"));
    expect(id, client.getLatestSchemaMetadata("java-value").getId());
    expect(references, client.getLatestSchemaMetadata("java-value").getReferences());
    expect(true, client.getAllSubjectsById(cityId).contains("java-city"));

    CachedSchemaRegistryClient reader = new CachedSchemaRegistryClient(url, 100);
    AvroSchema read = (AvroSchema) reader.getSchemaById(id);
    expect(order.rawSchema(), read.rawSchema());
    System.out.println("written " + HexFormat.of().formatHex(written(id, read.rawSchema())));
    ByteBuffer framed = ByteBuffer.wrap(HexFormat.of().parseHex(arguments[1]));
    expect((byte) 0, framed.get());
    Schema writer = ((AvroSchema) reader.getSchemaById(framed.getInt())).rawSchema();
    byte[] bare = new byte[framed.remaining()];
    framed.get(bare);
    Object value = new GenericDatumReader<Object>(writer)
        .read(null, DecoderFactory.get().binaryDecoder(bare, null));
    System.out.println("read " + value);

    AvroSchema other = new AvroSchema(INCOMPATIBLE);
    expect(false, client.testCompatibility("java-value", other));
    expect(false, client.testCompatibilityVerbose("java-value", other).isEmpty());
    refused(40901, () -> client.register("java-value", other));
    expect("NONE", client.updateCompatibility("java-value", CompatibilityLevel.NONE.name));
    expect("NONE", client.getCompatibility("java-value"));
    client.register("java-value", other);
    expect(List.of(1, 2), client.getAllVersions("java-value"));
    client.deleteCompatibility("java-value");
    expect("READONLY", client.setMode("READONLY", "java-value"));
    refused(42205, () -> client.deleteSchemaVersion("java-value", "2"));
    client.deleteMode("java-value");
    refused(42206, () -> client.deleteSubject("java-city"));
    expect(2, client.deleteSchemaVersion("java-value", "2"));
    expect(2, client.deleteSchemaVersion(Map.of(), "java-value", "2", true));
    expect(List.of(1), client.deleteSubject("java-value"));
    refused(40401, () -> reader.getLatestSchemaMetadata("java-value"));
    client.close();
    reader.close();
  }

  static byte[] written(int id, Schema schema) throws Exception {
    GenericData.Record city = new GenericData.Record(schema.getField("home").schema());
    city.put("name", "Wien");
    GenericData.Record order = new GenericData.Record(schema);
    order.put("id", 7);
    order.put("home", city);
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    bytes.write(0);
    bytes.write(ByteBuffer.allocate(4).putInt(id).array());
    var encoder = EncoderFactory.get().directBinaryEncoder(bytes, null);
    new GenericDatumWriter<Object>(schema).write(order, encoder);
    return bytes.toByteArray();
  }
}
