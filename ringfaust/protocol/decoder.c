/* The function of decoder.py: a batch of Kafka's message format 2 as `FetchedRecord`s (ADR 39).

   What it does not understand it leaves to the Kafka client, which raises the errors. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Where the header of a batch has its fields, and where the records begin. */
enum { LENGTH_AT = 8, MAGIC_AT = 16, ATTRIBUTES_AT = 21, FIRST_TIME_AT = 27, LAST_TIME_AT = 35,
       COUNT_AT = 57, RECORDS_AT = 61 };
/* A batch's length counts what follows it. */
enum { BEHIND_LENGTH = 12 };
enum { COMPRESSION = 7, LOG_APPEND_TIME = 8, CONTROL = 0x20 };
/* The fields of FetchedRecord; load() checks their order. */
enum { TOPIC, PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS, FIELDS };

static PyTypeObject *FetchedRecord;
static PyObject *no_headers;

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

static PyObject *all_headers(Reader *r) {
    long long count = varint(r);
    if (!count && !r->bad) return Py_NewRef(no_headers);
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
    long long time = batch->first_time + varint(r), number = varint(r);
    long long offset = batch->base_offset + number;
    if (batch->is_append_time) time = batch->last_time;
    if (number < 0) r->bad = 1;
    if (r->bad) return NULL;
    if (offset < batch->first_offset) {
        r->at = end;
        Py_RETURN_NONE;
    }
    PyObject *record = FetchedRecord->tp_alloc(FetchedRecord, FIELDS);
    if (!record) return NULL;
    PyTuple_SET_ITEM(record, TOPIC, Py_NewRef(batch->topic));
    PyTuple_SET_ITEM(record, PARTITION, Py_NewRef(batch->partition));
    PyTuple_SET_ITEM(record, OFFSET, PyLong_FromLongLong(offset));
    PyTuple_SET_ITEM(record, TIMESTAMP, PyLong_FromLongLong(time));
    PyTuple_SET_ITEM(record, TIMESTAMP_TYPE, Py_NewRef(batch->time_type));
    PyTuple_SET_ITEM(record, KEY, sized_bytes(r));
    PyTuple_SET_ITEM(record, VALUE, sized_bytes(r));
    PyTuple_SET_ITEM(record, HEADERS, all_headers(r));
    for (int field = 0; field < FIELDS; field++)
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

static PyObject *records_of(PyObject *self, PyObject *arguments) {
    Py_buffer fetched;
    Py_ssize_t start;
    Batch batch;
    if (!PyArg_ParseTuple(arguments, "y*nLUO!", &fetched, &start, &batch.first_offset, &batch.topic,
                          &PyLong_Type, &batch.partition))
        return NULL;
    PyObject *records = decode(fetched.buf, fetched.len, start, &batch);
    PyBuffer_Release(&fetched);
    return records;
}

/* --- the module ------------------------------------------------------------------------------- */

static int load(PyObject *module) {
    PyObject *records = PyImport_ImportModule("ringfaust.protocol.records");
    PyObject *found = records ? PyObject_GetAttrString(records, "FetchedRecord") : NULL;
    PyObject *fields = found ? PyObject_GetAttrString(found, "_fields") : NULL;
    PyObject *expected = Py_BuildValue("(ssssssss)", "topic", "partition", "offset", "timestamp",
                                       "timestamp_type", "key", "value", "headers");
    int same = fields && expected ? PyObject_RichCompareBool(fields, expected, Py_EQ) : -1;
    if (!same) PyErr_SetString(PyExc_TypeError, "FetchedRecord has other fields than decoder.c");
    FetchedRecord = (PyTypeObject *)found;
    no_headers = PyTuple_New(0);
    Py_XDECREF(records);
    Py_XDECREF(fields);
    Py_XDECREF(expected);
    return same == 1 && no_headers ? 0 : -1;
}

static PyMethodDef functions[] = {{"records_of", records_of, METH_VARARGS, NULL}, {NULL}};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, load}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ringfaust.protocol.decoder", "See decoder.py.", 0, functions, slots};

PyMODINIT_FUNC PyInit_decoder(void) { return PyModuleDef_Init(&definition); }
