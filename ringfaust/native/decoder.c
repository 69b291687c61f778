/* The functions of decoder.py: above all, a batch of Kafka's message format 2 as `FetchedRecord`s (ADR 39).

   What it does not understand it leaves to the Kafka client, which raises the errors. */

#include "native.h"

/* Where the header of a batch has its fields, and where the records begin. */
enum { LENGTH_AT = 8, MAGIC_AT = 16, ATTRIBUTES_AT = 21, FIRST_TIME_AT = 27, LAST_TIME_AT = 35,
       COUNT_AT = 57, RECORDS_AT = 61 };
/* A batch's length counts what follows it. */
enum { BEHIND_LENGTH = 12 };
enum { COMPRESSION = 7, LOG_APPEND_TIME = 8, CONTROL = 0x20 };

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *at, *end;
    int bad; /* the bytes end too early or make no sense; whatever follows is ignored */
} Reader;

static unsigned long long big_endian(const unsigned char *from, int bytes) {
    unsigned long long number = 0;
    while (bytes--) number = number << 8 | *from++;
    return number;
}

static long long varint(Reader *r) {
    unsigned long long raw = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        unsigned char byte = *r->at++;
        raw |= (unsigned long long)(byte & 0x7F) << shift;
        if (byte < 0x80) return (long long)(raw >> 1) ^ -(long long)(raw & 1);
    }
    r->bad = 1;
    return 0;
}

/* The next `size` bytes, or NULL. */
static const char *skip(Reader *r, long long size) {
    const unsigned char *from = r->at;
    if (r->bad || size < 0 || size > r->end - from) {
        r->bad = 1;
        return NULL;
    }
    r->at += size;
    return (const char *)from;
}

/* Bytes behind their length, or None. NULL: bad, or an exception. */
static PyObject *sized_bytes(Reader *r) {
    long long size = varint(r);
    if (size == -1 && !r->bad) Py_RETURN_NONE;
    const char *from = skip(r, size);
    return from ? PyBytes_FromStringAndSize(from, size) : NULL;
}

static PyObject *one_header(Reader *r) {
    long long size = varint(r);
    const char *from = skip(r, size);
    if (!from) return NULL;
    PyObject *name = PyUnicode_DecodeUTF8(from, size, NULL);
    if (!name) {
        PyErr_Clear();
        r->bad = 1;
        return NULL;
    }
    PyObject *value = sized_bytes(r);
    PyObject *pair = value ? PyTuple_Pack(2, name, value) : NULL;
    Py_DECREF(name);
    Py_XDECREF(value);
    return pair;
}

static PyObject *all_headers(Reader *r, long long count) {
    if (!count && !r->bad) return PyTuple_New(0);
    if (r->bad || count < 0 || count > r->end - r->at) {
        r->bad = 1;
        return NULL;
    }
    PyObject *headers = PyTuple_New(count);
    for (long long i = 0; headers && i < count; i++) {
        PyObject *pair = one_header(r);
        if (pair) {
            PyTuple_SET_ITEM(headers, i, pair);
        } else {
            Py_CLEAR(headers);
        }
    }
    return headers;
}

/* In place of more headers than a record may have, none of which is read: how many there are. */
static PyObject *too_many_headers(Reader *r, long long count, const unsigned char *end) {
    if (count > (end - r->at) / 2) { /* a header takes at least two bytes */
        r->bad = 1;
        return NULL;
    }
    r->at = end;
    char digits[24];
    int size = snprintf(digits, sizeof digits, "%lld", count);
    return Py_BuildValue("((sy#))", TOO_MANY_HEADERS, digits, (Py_ssize_t)size);
}

/* Reads key, value and headers into a record. */
static void read_content(Reader *r, PyObject *record, const unsigned char *end) {
    PyObject *key = sized_bytes(r), *value = sized_bytes(r), *headers;
    long long count = varint(r);
    if (!r->bad && count > (long long)MOST_HEADERS) {
        headers = too_many_headers(r, count, end);
        Py_XSETREF(key, Py_NewRef(Py_None));
        Py_XSETREF(value, Py_NewRef(Py_None));
    } else {
        headers = all_headers(r, count);
    }
    PyTuple_SET_ITEM(record, FETCHED_RECORD_KEY, key);
    PyTuple_SET_ITEM(record, FETCHED_RECORD_VALUE, value);
    PyTuple_SET_ITEM(record, FETCHED_RECORD_HEADERS, headers);
}

/* --- records ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject *topic, *partition, *time_type;
    long long base_offset, first_offset, first_time, last_time;
    int is_append_time;
} Batch;

/* The next record as a new reference; None if it is before the first; NULL: bad, or an exception. */
static PyObject *one_record(Reader *r, const Batch *batch) {
    long long size = varint(r);
    if (r->bad || size < 0 || size > r->end - r->at) {
        r->bad = 1;
        return NULL;
    }
    const unsigned char *end = r->at + size;
    const char *attributes = skip(r, 1);
    if (attributes && *attributes) r->bad = 1; /* Kafka has none so far */
    long long later = varint(r), number = varint(r), time, offset;
    if (__builtin_add_overflow(batch->first_time, later, &time)) r->bad = 1;
    if (__builtin_add_overflow(batch->base_offset, number, &offset)) r->bad = 1;
    if (batch->is_append_time) time = batch->last_time;
    if (number < 0) r->bad = 1;
    if (r->bad) return NULL;
    if (offset < batch->first_offset) {
        r->at = end;
        Py_RETURN_NONE;
    }
    PyObject *record = new_tuple(TYPE(CLASS_FETCHED_RECORD), FETCHED_RECORD_FIELDS);
    if (!record) return NULL;
    PyTuple_SET_ITEM(record, FETCHED_RECORD_TOPIC, Py_NewRef(batch->topic));
    PyTuple_SET_ITEM(record, FETCHED_RECORD_PARTITION, Py_NewRef(batch->partition));
    PyTuple_SET_ITEM(record, FETCHED_RECORD_OFFSET, PyLong_FromLongLong(offset));
    PyTuple_SET_ITEM(record, FETCHED_RECORD_TIMESTAMP, PyLong_FromLongLong(time));
    PyTuple_SET_ITEM(record, FETCHED_RECORD_TIMESTAMP_TYPE, Py_NewRef(batch->time_type));
    read_content(r, record, end);
    for (int field = 0; field < FETCHED_RECORD_FIELDS; field++)
        if (!PyTuple_GET_ITEM(record, field)) r->bad = 1;
    if (r->at != end) r->bad = 1;
    if (r->bad) Py_CLEAR(record);
    return record;
}

/* All records of a batch; NULL: bad, or an exception. */
static PyObject *all_records(Reader *r, const Batch *batch, long long count) {
    PyObject *records = PyList_New(0);
    for (; records && r->at < r->end; count--) {
        PyObject *record = one_record(r, batch);
        if (!record || (record != Py_None && PyList_Append(records, record) < 0)) Py_CLEAR(records);
        Py_XDECREF(record);
    }
    if (count) Py_CLEAR(records);
    return records;
}

static PyObject *decode(const unsigned char *fetched, Py_ssize_t size, Py_ssize_t start,
                        Batch *batch) {
    if (start < 0 || size - start < RECORDS_AT) Py_RETURN_NONE;
    const unsigned char *header = fetched + start;
    int attributes = (int)big_endian(header + ATTRIBUTES_AT, 2);
    long long length = (int)big_endian(header + LENGTH_AT, 4);
    if (header[MAGIC_AT] != 2 || attributes & (COMPRESSION | CONTROL)
        || length < RECORDS_AT - BEHIND_LENGTH || length > size - start - BEHIND_LENGTH)
        Py_RETURN_NONE;
    batch->base_offset = (long long)big_endian(header, 8);
    batch->first_time = (long long)big_endian(header + FIRST_TIME_AT, 8);
    batch->last_time = (long long)big_endian(header + LAST_TIME_AT, 8);
    batch->is_append_time = (attributes & LOG_APPEND_TIME) != 0;
    batch->time_type = PyLong_FromLong(batch->is_append_time);
    if (!batch->time_type) return NULL;
    Reader r = {header + RECORDS_AT, header + BEHIND_LENGTH + length, 0};
    PyObject *records = all_records(&r, batch, (int)big_endian(header + COUNT_AT, 4));
    Py_DECREF(batch->time_type);
    if (!records && !PyErr_Occurred()) Py_RETURN_NONE;
    return records;
}

PyObject *records_of(PyObject *self, PyObject *arguments) {
    Py_buffer fetched;
    Py_ssize_t start;
    Batch batch;
    if (!LOADED()) return NULL;
    if (!PyArg_ParseTuple(arguments, "y*nLUO!", &fetched, &start, &batch.first_offset, &batch.topic,
                          &PyLong_Type, &batch.partition))
        return NULL;
    PyObject *records = decode(fetched.buf, fetched.len, start, &batch);
    PyBuffer_Release(&fetched);
    return records;
}

/* --- what records take ------------------------------------------------------------------------ */

/* The bytes of a key, a value, or a part of a header; None has none. */
static Py_ssize_t size_of(PyObject *content) {
    if (PyBytes_Check(content)) return PyBytes_GET_SIZE(content);
    if (PyUnicode_Check(content)) return PyUnicode_GET_LENGTH(content);
    return content == Py_None ? 0 : PyObject_Length(content);
}

/* -1: an exception. */
static Py_ssize_t held_by_header(PyObject *header) {
    if (!is_a(header, &PyTuple_Type)) return -1;
    if (PyTuple_GET_SIZE(header) != 2) {
        PyErr_Format(PyExc_ValueError, "a header is a name and a value, not %R", header);
        return -1;
    }
    Py_ssize_t name = size_of(PyTuple_GET_ITEM(header, 0));
    Py_ssize_t content = name < 0 ? -1 : size_of(PyTuple_GET_ITEM(header, 1));
    return content < 0 ? -1 : (Py_ssize_t)HEADER_BYTES + name + content;
}

static Py_ssize_t held_by_record(PyObject *record) {
    if (!is_whole(record, CLASS_FETCHED_RECORD)) return -1;
    Py_ssize_t key = size_of(OF(record, FETCHED_RECORD_KEY));
    Py_ssize_t value = key < 0 ? -1 : size_of(OF(record, FETCHED_RECORD_VALUE));
    PyObject *headers = value < 0 ? NULL : PySequence_Fast(OF(record, FETCHED_RECORD_HEADERS), "headers are a sequence");
    if (!headers) return -1;
    Py_ssize_t held = (Py_ssize_t)RECORD_BYTES + key + value, more = 0;
    for (Py_ssize_t i = 0; more >= 0 && i < PySequence_Fast_GET_SIZE(headers); i++) {
        more = held_by_header(PySequence_Fast_GET_ITEM(headers, i));
        held += more;
    }
    Py_DECREF(headers);
    return more < 0 ? -1 : held;
}

PyObject *held_bytes(PyObject *self, PyObject *all_records) {
    PyObject *records = LOADED() ? PySequence_Fast(all_records, "records are a sequence") : NULL;
    if (!records) return NULL;
    Py_ssize_t held = 0, more = 0;
    for (Py_ssize_t i = 0; more >= 0 && i < PySequence_Fast_GET_SIZE(records); i++) {
        more = held_by_record(PySequence_Fast_GET_ITEM(records, i));
        held += more;
    }
    Py_DECREF(records);
    return more < 0 ? NULL : PyLong_FromSsize_t(held);
}
