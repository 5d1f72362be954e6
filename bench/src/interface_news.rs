//! News of a host's network interface while a command runs, in lines for people.

use rma_xdp::{
    HostOf,
    device::{InterfaceState, InterfaceStatus},
    engine::EngineKind,
};

use crate::line;

/// Says what has become of an interface, once.
#[derive(Debug)]
pub(crate) struct InterfaceNews {
    /// The status that was said last. `None` over UDP, where there is nothing to say.
    said: Option<InterfaceStatus>,
}

impl InterfaceNews {
    /// Starts from the present state of `host`'s interface, which is not news.
    pub(crate) fn new(host: &HostOf<impl EngineKind>) -> Self {
        Self { said: host.interface() }
    }

    /// Says what is different by now, if anything is.
    pub(crate) fn say(&mut self, host: &HostOf<impl EngineKind>) {
        let now = host.interface();
        if let (Some(said), Some(now)) = (&mut self.said, now)
            && let Some(text) = difference(said, &now)
        {
            line!("  {text}");
            *said = now;
        }
    }
}

/// Returns the news to report. Nothing while a host is about to attach: it says soon that it has,
/// or why it cannot.
fn difference(said: &InterfaceStatus, now: &InterfaceStatus) -> Option<String> {
    let about_to_attach = now.state == InterfaceState::Detached && now.trouble.is_none();
    if said == now || about_to_attach {
        return None;
    }
    let mut text = now.to_string();
    if said.interface != now.interface {
        text = format!("{text}; it was named {}", said.interface);
    }
    if said.attachments != now.attachments {
        text = format!("{text}, attached again: {}", now.device);
    }
    Some(text)
}
