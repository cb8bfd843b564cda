import { QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App, showWaiting } from "./app";
import { asked } from "./early";
import { inbox } from "./server/inbox";
import { notifications } from "./server/notifications";
import "./styles.css";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={inbox.queries}>
        <App />
      </QueryClientProvider>
    </StrictMode>,
  );
}

void inbox.enter(asked);
notifications.start();
inbox.drawing.watch(showWaiting);
// A new link that is opened in a tab with the page only changes the fragment.
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#sign-in=")) void inbox.enter();
});
window.addEventListener("online", inbox.hurry);
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") inbox.hurry();
});
window.addEventListener("beforeunload", (event) => {
  // What is not sent yet stays open: the browser asks.
  if (inbox.board.deciding.length > 0) event.preventDefault();
});
setInterval(inbox.tick, 200);
