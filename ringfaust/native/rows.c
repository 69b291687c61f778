/* The function of row_encoder.py: the same bytes in a fraction of the time.

   The layouts are those of messages.py, deliveries.py and queue_rows.py. Rows of other kinds are
   encoded in Python. */

#include "native.h"

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

/* A number from 0 on that fits under a mask, and what the bits above it say. */
static void put_masked(Buffer *b, PyObject *number, unsigned long long mask,
                       unsigned long long above, int bytes) {
    unsigned long long found = (unsigned long long)whole(b, number);
    if (found & ~mask) refuse(b, "does not fit into its row", number);
    put_big_endian(b, found | above, bytes);
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
    PyObject *holders = is_message(message) ? OF(message, MESSAGE_HOLDERS) : NULL;
    if (!holders || !is_a(holders, &PyTuple_Type)) {
        b->failed = 1;
        return;
    }
    PyObject *payload = OF(message, MESSAGE_PAYLOAD);
    PyObject *key = OF(payload, PAYLOAD_KEY), *value = OF(payload, PAYLOAD_VALUE);
    PyObject *headers = PySequence_Fast(OF(payload, PAYLOAD_HEADERS), "headers are a sequence");
    if (!headers) {
        b->failed = 1;
        return;
    }
    Py_ssize_t id_size, group_size, source_size;
    const char *id = utf8(b, OF(message, MESSAGE_ID), &id_size);
    const char *group = utf8(b, OF(message, MESSAGE_GROUP), &group_size);
    const char *source = utf8(b, OF(payload, PAYLOAD_SOURCE), &source_size);
    unsigned long long flags = 0;
    if (!is_true(b, OF(message, MESSAGE_PERSISTENT)))
        flags = NON_PERSISTENT | (is_true(b, OF(message, MESSAGE_IS_BODYLESS)) ? BODYLESS : 0);
    put_big_endian(b, MESSAGE_VERSION, 1);
    put_number(b, OF(message, MESSAGE_SEQUENCE), 8);
    put_position(b, OF(message, MESSAGE_POSITION));
    put_masked(b, OF(message, MESSAGE_PRIORITY), PRIORITY_MASK, flags, 1);
    put_number(b, OF(message, MESSAGE_ENQUEUED_MS), 8);
    put_number(b, OF(message, MESSAGE_EXPIRES_AT_MS), 8);
    put_number(b, OF(message, MESSAGE_DUE_MS), 8);
    put_number(b, OF(message, MESSAGE_ATTEMPTS), 4);
    put_number(b, OF(message, MESSAGE_HANDOVERS), 4);
    put_number(b, OF(message, MESSAGE_SIZE_BYTES), 8);
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
    const char *consumer = utf8(b, OF(delivery, DELIVERY_CONSUMER), &consumer_size);
    const char *xid = utf8(b, OF(delivery, DELIVERY_XID), &xid_size);
    if (b->failed) return;
    unsigned long long flags = xid_size ? HAS_XID : 0;
    if (xid_size && is_true(b, OF(delivery, DELIVERY_IS_ORPHAN))) flags |= ORPHAN;
    put_big_endian(b, DELIVERY_VERSION, 1);
    put_masked(b, OF(delivery, DELIVERY_NUMBER), ORPHAN - 1, flags, 8);
    put_number(b, OF(delivery, DELIVERY_HANDED_MS), 6);
    put_length(b, consumer_size, 2);
    put(b, consumer, consumer_size);
    if (xid_size) {
        put_length(b, xid_size, 2);
        put(b, xid, xid_size);
    }
    put_message(b, OF(delivery, DELIVERY_MESSAGE));
}

/* --- queues ----------------------------------------------------------------------------------- */

/* The settings and pauses as JSON. Thousands of queues share the same object of settings. */
static PyObject *texts_of(PyObject *row) {
    static PyObject *last_applied, *last_texts;
    PyObject *settings = OF(row, QUEUE_ROW_SETTINGS), *applied = OF(row, QUEUE_ROW_APPLIED);
    PyObject *paused = OF(row, QUEUE_ROW_PAUSED), *set_ms = OF(row, QUEUE_ROW_SET_MS);
    if (!PyTuple_Check(paused) || !PyDict_Check(settings) || !PyDict_Check(set_ms)) {
        PyErr_Format(PyExc_TypeError, "not the settings and pauses of a queue: %R", row);
        return NULL;
    }
    int is_plain = !PyDict_GET_SIZE(settings) && !PyTuple_GET_SIZE(paused) && !PyDict_GET_SIZE(set_ms);
    if (is_plain && applied == last_applied) return Py_NewRef(last_texts);
    PyObject *texts = PyObject_CallFunctionObjArgs(queue_texts, settings, applied, paused, set_ms, NULL);
    if (texts && !is_a(texts, &PyBytes_Type)) Py_CLEAR(texts);
    if (texts && is_plain) {
        Py_XSETREF(last_applied, Py_NewRef(applied));
        Py_XSETREF(last_texts, Py_NewRef(texts));
    }
    return texts;
}

/* The numbers of a tuple that has `least` of them at least. */
static void read_numbers(Buffer *b, PyObject *tuple, long long *to, Py_ssize_t least,
                         Py_ssize_t most) {
    if (b->failed) return;
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > most || PyTuple_GET_SIZE(tuple) < least) {
        refuse(b, "not a tuple of numbers", tuple);
        return;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) to[i] = whole(b, PyTuple_GET_ITEM(tuple, i));
}

static void put_cursors(Buffer *b, PyObject *cursors) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cursors) && !b->failed; i++) {
        long long cursor[3] = {0};
        read_numbers(b, PyTuple_GET_ITEM(cursors, i), cursor, 3, 3);
        if (cursor[0] != (int)cursor[0] || cursor[1] < 0 || cursor[2] < 0)
            refuse(b, "not a cursor", cursors);
        put_big_endian(b, (unsigned long long)cursor[0], 4);
        put_big_endian(b, (unsigned long long)cursor[1], 8);
        put_big_endian(b, (unsigned long long)cursor[2], 8);
    }
}

static void put_queue(Buffer *b, PyObject *row) {
    if (b->failed || !is_whole(row, CLASS_QUEUE_ROW) || !is_a(OF(row, QUEUE_ROW_CURSORS), &PyTuple_Type)) {
        b->failed = 1;
        return;
    }
    PyObject *cursors = OF(row, QUEUE_ROW_CURSORS);
    long long numbers[BITS] = {0};
    numbers[SEQUENCE_AT] = whole(b, OF(row, QUEUE_ROW_SEQUENCE));
    numbers[ORDERS_AT] = whole(b, OF(row, QUEUE_ROW_ORDERS));
    numbers[WAKE_AT] = whole(b, OF(row, QUEUE_ROW_WAKE_MS));
    numbers[EXPIRING_AT] = whole(b, OF(row, QUEUE_ROW_EXPIRING));
    numbers[ATTACHED_AT] = whole(b, OF(row, QUEUE_ROW_ATTACHED));
    read_numbers(b, OF(row, QUEUE_ROW_DEPARTURES), numbers + DEPARTURES_AT, 2, 2);
    numbers[SIZE_AT] = whole(b, OF(row, QUEUE_ROW_SIZE_BYTES));
    numbers[NON_PERSISTENT_AT] = whole(b, OF(row, QUEUE_ROW_NON_PERSISTENT));
    read_numbers(b, OF(row, QUEUE_ROW_GROUPS), numbers + GROUPS_AT, 0, 3);
    numbers[CURSORS_AT] = PyTuple_GET_SIZE(cursors);
    read_numbers(b, OF(row, QUEUE_ROW_SENT_BOUNDS), numbers + SENT_BOUNDS_AT, 2, 2);
    read_numbers(b, OF(row, QUEUE_ROW_LEVEL_COUNTS), numbers + LEVELS_AT, LEVELS, LEVELS);
    read_numbers(b, OF(row, QUEUE_ROW_COUNTS), numbers + COUNTS_AT, 0, COUNTS);
    unsigned long long bits = 0;
    for (unsigned i = 0; i < BITS; i++) bits = bits << 1 | (numbers[i] != 0);
    PyObject *set_ms = OF(row, QUEUE_ROW_SET_MS);
    int is_dated = PyDict_Check(set_ms) && PyDict_GET_SIZE(set_ms);
    put_big_endian(b, is_dated ? DATED_QUEUE_VERSION : QUEUE_VERSION, 1);
    put_big_endian(b, bits, 8);
    for (unsigned i = 0; i < BITS && !b->failed; i++) {
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
    if (kind == KIND_QUEUE) return;
    Py_ssize_t size;
    const char *raw = utf8(b, queue, &size);
    if (!raw) return;
    put(b, raw, size);
    PUT(b, "\0");
    if (kind == KIND_RING) put_number(b, part, 1);
}

static void put_tail(Buffer *b, long kind, PyObject *key) {
    if (kind == KIND_DELIVERY) {
        put_number(b, key, 8);
    } else if (kind == KIND_QUEUE) {
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
    if (kind == KIND_DELIVERY) put_delivery(&b, value);
    else if (kind == KIND_QUEUE) put_queue(&b, value);
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
    int is_known = kind == KIND_RING || kind == KIND_DELIVERY || kind == KIND_SCHEDULED || kind == KIND_QUEUE;
    if (is_known && PyDict_CheckExact(rows))
        return append_rows(list, kind, PyTuple_GET_ITEM(table, 1), PyTuple_GET_ITEM(table, 2), rows);
    PyObject *done = PyObject_CallFunctionObjArgs(encode_table, list, table, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

PyObject *encode_writes(PyObject *self, PyObject *writes) {
    PyObject *tables = LOADED() ? PySequence_Fast(writes, "writes are a sequence") : NULL;
    PyObject *list = tables ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; list && i < PySequence_Fast_GET_SIZE(tables); i++)
        if (append_table(list, PySequence_Fast_GET_ITEM(tables, i))) Py_CLEAR(list);
    Py_XDECREF(tables);
    return list;
}
