/* main.c — sallyport-egress, the sidecar in a sandbox's network namespace. */
#include "egress/product.h"

int main(int argc, char **argv)
{
    return app_run(&egress_product, argc, argv);
}
