/* What the modules in C share: a buffer that grows, and the fields of named tuples.

   Fields are read by index; the indices are looked up when a module is loaded. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* --- a buffer that grows ---------------------------------------------------------------------- */

enum { ROOM = 4096 };

typedef struct {
    char *data;
    Py_ssize_t size, room;
    char own[ROOM]; /* enough for most records */
    int failed;     /* a Python exception is set; whatever follows is ignored */
} Buffer;

static void begin(Buffer *b) {
    b->data = b->own;
    b->size = 0;
    b->room = ROOM;
    b->failed = 0;
}

static void end(Buffer *b) {
    if (b->data != b->own) PyMem_Free(b->data);
}

/* Room for `more` bytes at the end, or NULL. */
static char *reserve(Buffer *b, Py_ssize_t more) {
    if (b->failed) return NULL;
    if (more > b->room - b->size) {
        Py_ssize_t room = 2 * (b->size + more);
        char *data = PyMem_Malloc(room);
        if (!data) {
            PyErr_NoMemory();
            b->failed = 1;
            return NULL;
        }
        memcpy(data, b->data, b->size);
        end(b);
        b->data = data;
        b->room = room;
    }
    return b->data + b->size;
}

static void put(Buffer *b, const char *data, Py_ssize_t size) {
    char *to = reserve(b, size);
    if (!to) return;
    memcpy(to, data, size);
    b->size += size;
}

#define PUT(b, literal) put(b, literal, sizeof(literal) - 1)

/* --- values ----------------------------------------------------------------------------------- */

static long long whole(Buffer *b, PyObject *number) {
    if (!PyLong_Check(number)) {
        if (!b->failed) PyErr_Format(PyExc_TypeError, "not a whole number: %R", number);
        b->failed = 1;
        return 0;
    }
    int overflow; /* unlike PyLong_AsLongLong, this reads two digits without a copy */
    long long found = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow) {
        if (!b->failed) PyErr_Format(PyExc_OverflowError, "more than 64 bits: %R", number);
        b->failed = 1;
    }
    return found;
}

static const char *utf8(Buffer *b, PyObject *text, Py_ssize_t *size) {
    const char *raw = b->failed ? NULL : PyUnicode_AsUTF8AndSize(text, size);
    if (!raw) b->failed = 1;
    return raw;
}

/* --- the fields of named tuples --------------------------------------------------------------- */

typedef struct {
    const char *name;
    int index;
} Field;

enum { M_ID, M_SEQUENCE, M_PRIORITY, M_ENQUEUED, M_EXPIRES, M_DUE, M_GROUP, M_ATTEMPTS,
       M_HANDOVERS, M_SIZE, M_PAYLOAD, M_PERSISTENT, M_POSITION, M_HOLDERS, M_BODYLESS };
static Field message_fields[] = {
    {"id"}, {"sequence"}, {"priority"}, {"enqueued_ms"}, {"expires_at_ms"}, {"due_ms"}, {"group"},
    {"attempts"}, {"handovers"}, {"size_bytes"}, {"payload"}, {"persistent"}, {"position"},
    {"holders"}, {"is_bodyless"}, {NULL}};

enum { D_NUMBER, D_CONSUMER, D_MESSAGE, D_HANDED, D_XID, D_ORPHAN };
static Field delivery_fields[] = {{"number"}, {"consumer"}, {"message"}, {"handed_ms"}, {"xid"},
                                  {"is_orphan"}, {NULL}};

enum { P_KEY, P_VALUE, P_HEADERS, P_SOURCE };
static Field payload_fields[] = {{"key"}, {"value"}, {"headers"}, {"source"}, {NULL}};

static PyObject *Message, *Delivery, *Payload;

#define GET(fields, tuple, field) PyTuple_GET_ITEM(tuple, fields[field].index)
#define OF_MESSAGE(tuple, field) GET(message_fields, tuple, field)
#define OF_DELIVERY(tuple, field) GET(delivery_fields, tuple, field)
#define OF_PAYLOAD(tuple, field) GET(payload_fields, tuple, field)

static int is_a(PyObject *found, PyObject *type) {
    if (Py_TYPE(found) == (PyTypeObject *)type) return 1;
    PyErr_Format(PyExc_TypeError, "expected %R, found %R", type, Py_TYPE(found));
    return 0;
}

/* Whether a message is one, and has a payload. */
static int is_message(PyObject *found) {
    return is_a(found, Message) && is_a(OF_MESSAGE(found, M_PAYLOAD), Payload);
}

static int is_delivery(PyObject *found) {
    return is_a(found, Delivery) && is_message(OF_DELIVERY(found, D_MESSAGE));
}

/* --- loading ----------------------------------------------------------------------------------- */

static int has_arguments(Py_ssize_t found, Py_ssize_t wanted) {
    if (found == wanted) return 1;
    PyErr_Format(PyExc_TypeError, "expected %zd arguments, found %zd", wanted, found);
    return 0;
}

/* The attribute of a module as a new reference, kept for ever. */
static PyObject *from(const char *module, const char *name) {
    PyObject *found = PyImport_ImportModule(module);
    PyObject *value = found ? PyObject_GetAttrString(found, name) : NULL;
    Py_XDECREF(found);
    return value;
}

static int find_fields(PyObject *type, Field *fields) {
    PyObject *names = type ? PyObject_GetAttrString(type, "_fields") : NULL;
    if (!names) return -1;
    for (; fields->name; fields++) {
        PyObject *name = PyUnicode_FromString(fields->name);
        Py_ssize_t index = name ? PySequence_Index(names, name) : -1;
        Py_XDECREF(name);
        if (index < 0) {
            Py_DECREF(names);
            return -1;
        }
        fields->index = (int)index;
    }
    Py_DECREF(names);
    return 0;
}

static int find_messages(void) {
    Message = from("ringfaust.core.model", "Message");
    Delivery = from("ringfaust.core.model", "Delivery");
    Payload = from("ringfaust.protocol.records", "Payload");
    return find_fields(Message, message_fields) || find_fields(Delivery, delivery_fields)
           || find_fields(Payload, payload_fields);
}
