/* web_pages: the console of a coordinator (/console/, management plane) and the chat of whoever
 * answers clients (/chat/, user plane): pages whose files are bytes of the program. They load
 * nothing from elsewhere, their policy allows no script but their own files, and every address in
 * them is relative, so that they work behind any prefix. What they show they ask of the plane that
 * served them, with the key that their reader gives. */
#ifndef BATON_NET_WEB_PAGES_H
#define BATON_NET_WEB_PAGES_H

#include <stdbool.h>
#include "common/net/router.h"

/* Where a browser that opens the root of a plane is sent; relative to it. */
#define WEB_CONSOLE "console/"
#define WEB_CHAT    "chat/"

/* Handlers take any arg. */
extern const struct route web_console_routes[]; /* PLANE_MGMT */
extern const struct route web_chat_routes[];    /* PLANE_DATA, open */

/* A browser asks for the root, as a page: Accept names text/html, which no client of an API does.
 */
bool web_wants_page(struct http_x *x);

#endif
