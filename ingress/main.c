/* main.c — sallyport-ingress, the gateway in front of a cluster of sandboxes. */
#include "ingress/product.h"

int main(int argc, char **argv)
{
    return app_run(&ingress_product, argc, argv);
}
