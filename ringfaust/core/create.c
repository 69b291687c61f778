/* The function of create.py in C: one allocation, where `tuple.__new__` has four (ADR 38).

   A value whose fields can be in no cycle is hidden from the garbage collector, as CPython does with
   plain tuples: it would look at each of the messages that a worker holds. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Whether a cycle may lead through this object. A dict that the collector does not track may be
   given other contents; a tuple may not. */
static int may_be_in_cycle(PyObject *object) {
    return PyObject_IS_GC(object) && (!PyTuple_Check(object) || PyObject_GC_IsTracked(object));
}

static PyObject *create(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    if (count < 1 || !PyType_Check(arguments[0])
        || !PyType_IsSubtype((PyTypeObject *)arguments[0], &PyTuple_Type)
        || arguments[0] == (PyObject *)&PyTuple_Type) {
        PyErr_SetString(PyExc_TypeError, "expected the class of a named tuple, and its fields");
        return NULL;
    }
    PyTypeObject *kind = (PyTypeObject *)arguments[0];
    PyObject *made = kind->tp_alloc(kind, count - 1);
    if (!made) return NULL;
    int is_tracked = 0;
    for (Py_ssize_t i = 1; i < count; i++) {
        PyTuple_SET_ITEM(made, i - 1, Py_NewRef(arguments[i]));
        is_tracked = is_tracked || may_be_in_cycle(arguments[i]);
    }
    if (!is_tracked) PyObject_GC_UnTrack(made);
    return made;
}

static PyMethodDef functions[] = {
    {"create", (PyCFunction)(void (*)(void))create, METH_FASTCALL, NULL}, {NULL}};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "ringfaust.core.create", "See create.py.", 0, functions, slots};

PyMODINIT_FUNC PyInit_create(void) { return PyModuleDef_Init(&definition); }
