/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_course.h - the part of a small life (small_life.h) that a device has a share in: blocks
 * born in HBM and moved between three tiers, streams and events beside the store, regions, a queue;
 * and what must still hold when only calls of the device have failed.
 */
#ifndef KVT_TESTS_DEVICE_COURSE_H
#define KVT_TESTS_DEVICE_COURSE_H

#include "small_life.h"

/* device_course - every name that is used again must have landed. */
void device_course(struct small_life *life);

/* device_course_judge - between the course and the close: what was durable is read, HOST and NVMe
 * take and give blocks, no slot or pin is left over, the health says what became of the device. */
void device_course_judge(struct small_life *life);

/* device_course_told - a call said KVT_E_GPU: then so does the health, at once. */
void device_course_told(struct small_life *life, enum kvt_status status);

#endif /* KVT_TESTS_DEVICE_COURSE_H */
