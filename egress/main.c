/* main.c — sallyport-egress, the sidecar in a sandbox's network namespace. */
#include "base/mem.h"
#include "egress/product.h"

int main(int argc, char **argv)
{
    mem_thrift();
    return app_run(&egress_product, argc, argv);
}
