/* until.h — turns a test's own loop, by its turn(), until a condition holds, and fails if it does
 * not. The condition may have effects: it is asked until it holds, and not again. */
#ifndef HARNESS_UNTIL_H
#define HARNESS_UNTIL_H

#define until(rig, condition)                                                     \
    do {                                                                          \
        bool holds_ = false;                                                      \
        for (int turns_ = 0; !(holds_ = (condition)) && turns_ < 20000; turns_++) \
            turn(rig);                                                            \
        assert_true(holds_);                                                      \
    } while (0)

#endif
