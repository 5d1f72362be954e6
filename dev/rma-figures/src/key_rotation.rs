//! Rotations of a region's key as clients of its key service live them: figure 14 of the paper
//! (§5.2, §7.3), with the service and its connections of TLS in the path.
//!
//! The clients probe one region without a pause. Each is a process of its own in all that concerns
//! keys: it has a portal, a cache of grants and a connection to the service, which it turns itself
//! while it waits for a key, as a thread's wake-up would take longer than a round trip. All portals
//! are of one host, and one thread drives them: what one of them does takes time from the others,
//! as it would on one NIC. On the other core, the owner of the region turns its host's engine and
//! its service between two turns of that.
//!
//! *Unavailability* of a client, its gap, is the time from the issue of its first op that failed to
//! that of the first that then succeeded. A reader of another region of the same host must not
//! notice.

mod beat;
mod command;
mod desk;
mod history;
mod keys;
mod owner;
mod party;
mod prober;
mod run;
mod scene;
mod stage;
pub mod transfers;

pub use command::{KeyRotationArgs, KeyRotationError, key_rotation};
pub use history::{Deed, History, What};
pub use scene::{CLIENTS_MAX, Kind, Rotations, Scene};
pub use stage::rotate;
