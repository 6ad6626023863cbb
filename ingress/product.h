/* product.h — the gateway as app_run() knows it. */
#ifndef INGRESS_PRODUCT_H
#define INGRESS_PRODUCT_H

#include "app/app.h"

extern const struct product ingress_product;

#endif
