/* product.h — the sidecar as a product of app.h. */
#ifndef EGRESS_PRODUCT_H
#define EGRESS_PRODUCT_H

#include "app/app.h"

extern const struct product egress_product;

#endif
