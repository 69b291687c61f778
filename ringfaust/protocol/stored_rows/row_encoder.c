/* The function of row_encoder.py in C: the same bytes in a fraction of the time (ADR 38).

   If you change `messages.py`, `deliveries.py` or `queue_rows.py`, change this: the test
   tests/protocol/test_row_encoder.py compares them. Rows of other kinds are encoded in Python. */

#include "../native.h"

/* As in messages.py, version.py and queue_rows.py. */
enum { MESSAGE_VERSION = 1, DELIVERY_VERSION = 0x81, QUEUE_VERSION = 0x82 };
enum { NON_PERSISTENT = 0x80, BODYLESS = 0x40, POSITION_BYTES = 14 };
#define NO_VALUE 0xFFFFFFFFULL
#define HAS_XID (1ULL << 63)
#define ORPHAN (1ULL << 62)
enum { BITS = 64, LEVELS_AT = 20, COUNTS_AT = 30, LEVELS = 10, COUNTS = 12 };

static long RING, DELIVERY, SCHEDULED, QUEUE;
static PyObject *QueueRow, *encode_table, *queue_texts;

enum { Q_SETTINGS, Q_APPLIED, Q_COUNTS, Q_LEVELS, Q_SEQUENCE, Q_ORDERS, Q_CURSORS, Q_PAUSED,
       Q_WAKE, Q_EXPIRING, Q_ATTACHED, Q_DEPARTURES, Q_SIZE, Q_NON_PERSISTENT, Q_GROUPS, Q_SENT };
static Field queue_fields[] = {
    {"settings"}, {"applied"}, {"counts"}, {"level_counts"}, {"sequence"}, {"orders"}, {"cursors"},
    {"paused"}, {"wake_ms"}, {"expiring"}, {"attached"}, {"departures"}, {"size_bytes"},
    {"non_persistent"}, {"groups"}, {"sent_bounds"}, {NULL}};
#define OF_QUEUE(tuple, field) GET(queue_fields, tuple, field)

/* --- numbers and texts ------------------------------------------------------------------------ */

static void put_big_endian(Buffer *b, unsigned long long number, int bytes) {
    char *to = reserve(b, bytes);
    if (!to) return;
    for (int i = bytes; i--; number >>= 8) to[i] = (char)(number & 0xFF);
    b->size += bytes;
}

static void refuse(Buffer *b, const char *what, PyObject *found) {
    if (!b->failed) PyErr_Format(PyExc_ValueError, "%s: %R", what, found);
    b->failed = 1;
}

/* A number from 0 on, in as many bytes. */
static void put_number(Buffer *b, PyObject *number, int bytes) {
    long long found = whole(b, number);
    if (found < 0 || (bytes < 8 && found >> 8 * bytes)) refuse(b, "does not fit into its row", number);
    put_big_endian(b, (unsigned long long)found, bytes);
}

static void put_length(Buffer *b, Py_ssize_t length, int bytes) {
    if (length >> (8 * bytes - (bytes == 4))) { /* four bytes have a sign */
        if (!b->failed) PyErr_Format(PyExc_ValueError, "too long for a row: %zd", length);
        b->failed = 1;
    }
    put_big_endian(b, (unsigned long long)length, bytes);
}

/* The position of a message, or a time and a sequence. */
static void put_position(Buffer *b, PyObject *position) {
    unsigned char *to = (unsigned char *)reserve(b, POSITION_BYTES);
    if (!to) return;
    if (!PyLong_Check(position)) {
        refuse(b, "not a whole number", position);
        return;
    }
#if PY_VERSION_HEX >= 0x030D0000
    int bad = _PyLong_AsByteArray((PyLongObject *)position, to, POSITION_BYTES, 0, 0, 1);
#else
    int bad = _PyLong_AsByteArray((PyLongObject *)position, to, POSITION_BYTES, 0, 0);
#endif
    if (bad) b->failed = 1;
    else b->size += POSITION_BYTES;
}

/* Bytes, or null: its length in the layout, without the bytes. */
static void put_data_length(Buffer *b, PyObject *data) {
    if (data == Py_None) put_big_endian(b, NO_VALUE, 4);
    else if (PyBytes_Check(data)) put_length(b, PyBytes_GET_SIZE(data), 4);
    else refuse(b, "not bytes", data);
}

static void put_data(Buffer *b, PyObject *data) {
    if (!b->failed && data != Py_None) put(b, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data));
}

/* --- messages and deliveries ------------------------------------------------------------------ */

static void put_headers(Buffer *b, PyObject *headers) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(headers) && !b->failed; i++) {
        PyObject *pair = PySequence_Fast_GET_ITEM(headers, i), *value;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
            refuse(b, "a header is a name and a value", pair);
            return;
        }
        Py_ssize_t size;
        const char *name = utf8(b, PyTuple_GET_ITEM(pair, 0), &size);
        if (!name) return;
        put_big_endian(b, (unsigned long long)size, 4);
        value = PyTuple_GET_ITEM(pair, 1);
        put_data_length(b, value);
        put(b, name, size);
        put_data(b, value);
    }
}

/* The consumers that have held the message, with a NUL between them. */
static void put_holders(Buffer *b, PyObject *holders) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(holders); i++) {
        Py_ssize_t size;
        const char *raw = utf8(b, PyTuple_GET_ITEM(holders, i), &size);
        if (!raw) return;
        if (i) PUT(b, "\0");
        put(b, raw, size);
    }
}

static void put_message(Buffer *b, PyObject *message) {
    if (b->failed) return;
    PyObject *holders = is_message(message) ? OF_MESSAGE(message, M_HOLDERS) : NULL;
    if (!holders || !is_a(holders, (PyObject *)&PyTuple_Type)) {
        b->failed = 1;
        return;
    }
    PyObject *payload = OF_MESSAGE(message, M_PAYLOAD);
    PyObject *key = OF_PAYLOAD(payload, P_KEY), *value = OF_PAYLOAD(payload, P_VALUE);
    PyObject *headers = PySequence_Fast(OF_PAYLOAD(payload, P_HEADERS), "headers are a sequence");
    if (!headers) {
        b->failed = 1;
        return;
    }
    Py_ssize_t id_size, group_size, source_size;
    const char *id = utf8(b, OF_MESSAGE(message, M_ID), &id_size);
    const char *group = utf8(b, OF_MESSAGE(message, M_GROUP), &group_size);
    const char *source = utf8(b, OF_PAYLOAD(payload, P_SOURCE), &source_size);
    int flags = 0;
    if (!PyObject_IsTrue(OF_MESSAGE(message, M_PERSISTENT)))
        flags = NON_PERSISTENT | (PyObject_IsTrue(OF_MESSAGE(message, M_BODYLESS)) ? BODYLESS : 0);
    put_big_endian(b, MESSAGE_VERSION, 1);
    put_number(b, OF_MESSAGE(message, M_SEQUENCE), 8);
    put_position(b, OF_MESSAGE(message, M_POSITION));
    put_big_endian(b, (unsigned long long)(whole(b, OF_MESSAGE(message, M_PRIORITY)) | flags), 1);
    put_number(b, OF_MESSAGE(message, M_ENQUEUED), 8);
    put_number(b, OF_MESSAGE(message, M_EXPIRES), 8);
    put_number(b, OF_MESSAGE(message, M_DUE), 8);
    put_number(b, OF_MESSAGE(message, M_ATTEMPTS), 4);
    put_number(b, OF_MESSAGE(message, M_HANDOVERS), 4);
    put_number(b, OF_MESSAGE(message, M_SIZE), 8);
    if (!b->failed) { /* then the texts have their lengths */
        put_length(b, id_size, 2);
        put_length(b, group_size, 2);
        put_length(b, source_size, 2);
        Py_ssize_t lengths_at = b->size;
        put_length(b, 0, 2); /* of the holders: see below */
        put_data_length(b, key);
        put_data_length(b, value);
        put_length(b, PySequence_Fast_GET_SIZE(headers), 2);
        put(b, id, id_size);
        put(b, group, group_size);
        put(b, source, source_size);
        Py_ssize_t begin_at = b->size;
        put_holders(b, holders);
        if (b->size > begin_at) {
            Py_ssize_t end_at = b->size;
            b->size = lengths_at;
            put_length(b, end_at - begin_at, 2);
            b->size = end_at;
        }
        put_data(b, key);
        put_data(b, value);
        put_headers(b, headers);
    }
    Py_DECREF(headers);
}

static void put_delivery(Buffer *b, PyObject *delivery) {
    if (b->failed || !is_delivery(delivery)) {
        b->failed = 1;
        return;
    }
    Py_ssize_t consumer_size, xid_size;
    const char *consumer = utf8(b, OF_DELIVERY(delivery, D_CONSUMER), &consumer_size);
    const char *xid = utf8(b, OF_DELIVERY(delivery, D_XID), &xid_size);
    if (b->failed) return;
    unsigned long long number = (unsigned long long)whole(b, OF_DELIVERY(delivery, D_NUMBER));
    unsigned long long handed_ms = (unsigned long long)whole(b, OF_DELIVERY(delivery, D_HANDED));
    if (xid_size) number |= HAS_XID;
    if (xid_size && PyObject_IsTrue(OF_DELIVERY(delivery, D_ORPHAN))) number |= ORPHAN;
    put_big_endian(b, DELIVERY_VERSION, 1);
    put_big_endian(b, number, 8);
    put_big_endian(b, handed_ms << 16 | (unsigned long long)consumer_size, 8);
    put(b, consumer, consumer_size);
    if (xid_size) {
        put_length(b, xid_size, 2);
        put(b, xid, xid_size);
    }
    put_message(b, OF_DELIVERY(delivery, D_MESSAGE));
}

/* --- queues ----------------------------------------------------------------------------------- */

/* The settings and pauses as JSON. Thousands of queues share the same object of settings. */
static PyObject *texts_of(PyObject *row) {
    static PyObject *last_applied, *last_texts;
    PyObject *settings = OF_QUEUE(row, Q_SETTINGS), *applied = OF_QUEUE(row, Q_APPLIED);
    PyObject *paused = OF_QUEUE(row, Q_PAUSED);
    if (!PyTuple_Check(paused) || !PyDict_Check(settings)) {
        PyErr_Format(PyExc_TypeError, "not the settings and pauses of a queue: %R", row);
        return NULL;
    }
    int is_plain = !PyDict_GET_SIZE(settings) && !PyTuple_GET_SIZE(paused);
    if (is_plain && applied == last_applied) return Py_NewRef(last_texts);
    PyObject *texts = PyObject_CallFunctionObjArgs(queue_texts, settings, applied, paused, NULL);
    if (texts && !is_a(texts, (PyObject *)&PyBytes_Type)) Py_CLEAR(texts);
    if (texts && is_plain) {
        Py_XSETREF(last_applied, Py_NewRef(applied));
        Py_XSETREF(last_texts, Py_NewRef(texts));
    }
    return texts;
}

/* The numbers of a tuple, of which there may be fewer. */
static void read_numbers(Buffer *b, PyObject *tuple, long long *to, Py_ssize_t most) {
    if (b->failed) return;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > most) {
        refuse(b, "not a tuple of numbers", tuple);
        return;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) to[i] = whole(b, PyTuple_GET_ITEM(tuple, i));
}

static void put_cursors(Buffer *b, PyObject *cursors) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cursors) && !b->failed; i++) {
        long long cursor[3] = {0};
        read_numbers(b, PyTuple_GET_ITEM(cursors, i), cursor, 3);
        put_big_endian(b, (unsigned long long)cursor[0], 4);
        put_big_endian(b, (unsigned long long)cursor[1], 8);
        put_big_endian(b, (unsigned long long)cursor[2], 8);
    }
}

static void put_queue(Buffer *b, PyObject *row) {
    if (b->failed || !is_a(row, QueueRow) || !is_a(OF_QUEUE(row, Q_CURSORS), (PyObject *)&PyTuple_Type)) {
        b->failed = 1;
        return;
    }
    PyObject *cursors = OF_QUEUE(row, Q_CURSORS);
    long long numbers[BITS] = {
        whole(b, OF_QUEUE(row, Q_SEQUENCE)), whole(b, OF_QUEUE(row, Q_ORDERS)),
        whole(b, OF_QUEUE(row, Q_WAKE)), whole(b, OF_QUEUE(row, Q_EXPIRING)),
        whole(b, OF_QUEUE(row, Q_ATTACHED))};
    read_numbers(b, OF_QUEUE(row, Q_DEPARTURES), numbers + 5, 2);
    numbers[7] = whole(b, OF_QUEUE(row, Q_SIZE));
    numbers[8] = whole(b, OF_QUEUE(row, Q_NON_PERSISTENT));
    read_numbers(b, OF_QUEUE(row, Q_GROUPS), numbers + 9, 3);
    numbers[12] = PyTuple_GET_SIZE(cursors);
    read_numbers(b, OF_QUEUE(row, Q_SENT), numbers + 13, 2);
    read_numbers(b, OF_QUEUE(row, Q_LEVELS), numbers + LEVELS_AT, LEVELS);
    read_numbers(b, OF_QUEUE(row, Q_COUNTS), numbers + COUNTS_AT, COUNTS);
    unsigned long long bits = 0;
    for (int i = 0; i < BITS; i++) bits = bits << 1 | (numbers[i] != 0);
    put_big_endian(b, QUEUE_VERSION, 1);
    put_big_endian(b, bits, 8);
    for (int i = 0; i < BITS && !b->failed; i++) {
        if (numbers[i] < 0) refuse(b, "a number of a queue is negative", row);
        if (numbers[i]) put_big_endian(b, (unsigned long long)numbers[i], 8);
    }
    put_cursors(b, cursors);
    PyObject *texts = b->failed ? NULL : texts_of(row);
    if (texts) put_data(b, texts);
    else b->failed = 1;
    Py_XDECREF(texts);
}

/* --- tables ----------------------------------------------------------------------------------- */

/* What begins each key of a table; see keys.py. */
static void put_prefix(Buffer *b, long kind, PyObject *queue, PyObject *part) {
    put_big_endian(b, (unsigned long long)kind, 1);
    if (kind == QUEUE) return;
    Py_ssize_t size;
    const char *raw = utf8(b, queue, &size);
    if (!raw) return;
    put(b, raw, size);
    PUT(b, "\0");
    if (kind == RING) put_number(b, part, 1);
}

static void put_tail(Buffer *b, long kind, PyObject *key) {
    if (kind == DELIVERY) {
        put_number(b, key, 8);
    } else if (kind == QUEUE) {
        Py_ssize_t size;
        const char *raw = utf8(b, key, &size);
        if (raw) put(b, raw, size);
    } else {
        put_position(b, key);
    }
}

/* Appends a pair of key and value to a list; it takes both references. */
static int append_pair(PyObject *list, PyObject *key, PyObject *value) {
    PyObject *pair = key && value ? PyTuple_New(2) : NULL;
    if (!pair) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        return -1;
    }
    PyTuple_SET_ITEM(pair, 0, key);
    PyTuple_SET_ITEM(pair, 1, value);
    int failed = PyList_Append(list, pair);
    Py_DECREF(pair);
    return failed;
}

static PyObject *as_bytes(Buffer *b) {
    PyObject *made = b->failed ? NULL : PyBytes_FromStringAndSize(b->data, b->size);
    end(b);
    return made;
}

static PyObject *value_bytes(long kind, PyObject *value) {
    if (value == Py_None) return Py_NewRef(value);
    Buffer b;
    begin(&b);
    if (kind == DELIVERY) put_delivery(&b, value);
    else if (kind == QUEUE) put_queue(&b, value);
    else put_message(&b, value);
    return as_bytes(&b);
}

/* The rows of a table of these kinds. */
static int append_rows(PyObject *list, long kind, PyObject *queue, PyObject *part, PyObject *rows) {
    Buffer b;
    begin(&b);
    put_prefix(&b, kind, queue, part);
    Py_ssize_t prefix_size = b.size, at = 0;
    PyObject *key, *value;
    while (!b.failed && PyDict_Next(rows, &at, &key, &value)) {
        b.size = prefix_size;
        put_tail(&b, kind, key);
        PyObject *raw = b.failed ? NULL : PyBytes_FromStringAndSize(b.data, b.size);
        if (append_pair(list, raw, raw ? value_bytes(kind, value) : NULL)) b.failed = 1;
    }
    end(&b);
    return b.failed ? -1 : 0;
}

static int append_table(PyObject *list, PyObject *table) {
    if (!PyTuple_Check(table) || PyTuple_GET_SIZE(table) != 4) {
        PyErr_Format(PyExc_TypeError, "expected the writes of a table, found %R", table);
        return -1;
    }
    long kind = PyLong_AsLong(PyTuple_GET_ITEM(table, 0));
    if (kind == -1 && PyErr_Occurred()) return -1;
    PyObject *rows = PyTuple_GET_ITEM(table, 3);
    int is_known = kind == RING || kind == DELIVERY || kind == SCHEDULED || kind == QUEUE;
    if (is_known && PyDict_CheckExact(rows))
        return append_rows(list, kind, PyTuple_GET_ITEM(table, 1), PyTuple_GET_ITEM(table, 2), rows);
    PyObject *done = PyObject_CallFunctionObjArgs(encode_table, list, table, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static PyObject *encode_writes(PyObject *self, PyObject *writes) {
    PyObject *tables = PySequence_Fast(writes, "writes are a sequence");
    PyObject *list = tables ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(tables); i++)
        if (append_table(list, PySequence_Fast_GET_ITEM(tables, i))) Py_CLEAR(list);
    Py_XDECREF(tables);
    return list;
}

/* --- the module ------------------------------------------------------------------------------- */

static int find_kinds(void) {
    struct { const char *name; long *kind; } wanted[] = {
        {"RING", &RING}, {"DELIVERY", &DELIVERY}, {"SCHEDULED", &SCHEDULED}, {"QUEUE", &QUEUE}};
    PyObject *kinds = from("ringfaust.core.table", "Kind");
    for (int i = 0; kinds && i < 4; i++) {
        PyObject *kind = PyObject_GetAttrString(kinds, wanted[i].name);
        *wanted[i].kind = kind ? PyLong_AsLong(kind) : -1;
        Py_XDECREF(kind);
    }
    Py_XDECREF(kinds);
    return PyErr_Occurred() ? -1 : 0;
}

static int load(PyObject *module) {
    QueueRow = from("ringfaust.core.queue", "QueueRow");
    encode_table = from("ringfaust.protocol.stored_rows.writes", "encode_table");
    queue_texts = from("ringfaust.protocol.stored_rows.queue_rows", "queue_texts");
    if (!encode_table || !queue_texts || find_kinds() || find_messages()) return -1;
    return find_fields(QueueRow, queue_fields);
}

static PyMethodDef functions[] = {{"encode_writes", encode_writes, METH_O, NULL}, {NULL}};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, load}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ringfaust.protocol.stored_rows.row_encoder", "See row_encoder.py.", 0,
    functions, slots};

PyMODINIT_FUNC PyInit_row_encoder(void) { return PyModuleDef_Init(&definition); }
