"""Where instances of a class keep their slots: what both compiled readers and writers ask."""

cdef extern from *:
    """
    #include "structmember.h"

    /* Where instances of a class keep a slot, or -1 if this is no plain slot of that class. */
    static Py_ssize_t ottla_slot_place(PyObject *cls, PyObject *descriptor) {
        PyMemberDef *member;
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
                || !PyType_IsSubtype((PyTypeObject *)cls, PyDescr_TYPE(descriptor)))
            return -1;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX && member->flags == 0 ? member->offset : -1;
    }
    """
    Py_ssize_t ottla_slot_place(object cls, object descriptor)
