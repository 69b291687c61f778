import javax.jms.DeliveryMode;
import javax.jms.Session;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/** Sends messages of all kinds to a real Artemis: Fill URL QUEUE COUNT DUE_AT_MS. */
public class Fill {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        long dueAt = Long.parseLong(args[3]);
        try (var factory = new ActiveMQConnectionFactory(args[0]);
             var connection = factory.createConnection();
             var session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
            var producer = session.createProducer(session.createQueue(args[1]));
            for (int number = 0; number < count; number++) {
                var text = "message " + number + " <äß€😀>";
                var message = number % 3 == 0 ? session.createTextMessage(text) : session.createBytesMessage();
                if (message instanceof javax.jms.BytesMessage bytes) {
                    bytes.writeBytes(text.getBytes("UTF-8"));
                }
                message.setIntProperty("number", number);
                message.setStringProperty("colour", number % 2 == 0 ? "red & <blue>" : "green");
                message.setBooleanProperty("even", number % 2 == 0);
                message.setDoubleProperty("half", number / 2.0);
                if (number % 7 == 0) {
                    message.setStringProperty("JMSXGroupID", "group-" + number % 5);
                }
                producer.setDeliveryMode(DeliveryMode.PERSISTENT);
                producer.setPriority(number % 10 == 0 ? 9 : 4);
                producer.setTimeToLive(number % 11 == 0 ? 86_400_000_000L : 0);
                if (number % 100 == 50) {
                    message.setLongProperty("_AMQ_SCHED_DELIVERY", dueAt + number);
                }
                producer.send(message);
                if (number % 500 == 499) {
                    session.commit();
                }
            }
            session.commit();
        }
    }
}
