//! The network: nodes with shipped NICs, the links between them, and the heap of events.
//!
//! | module | what it is |
//! |---|---|
//! | [`queue`] | drop-tail, before something that has a rate |
//! | [`link`](mod@link) | delay, jitter, rate, queue, and faults of one direction of a path |
//! | [`switch`] | an output port for each node, shared by all that send to it |
//! | `alarms` | when each node wants to be woken |
//! | [`clock`] | a node's own clock, which is wrong |
//! | [`frame`] | a frame between nodes, its packet, and how long that is on the wire |
//! | [`model_aead`] | AES-GCM for who needs its time and not its secrecy |
//! | [`node`] | a NIC behind a device of some rate and MTU, which can be stopped |
//! | [`beside`] | the engines of one host: where packets land, who handles them |
//! | [`counter`] | where a node's counter values come from, over all its lives |
//! | [`mishap`] | pauses, crashes, restarts, regions that change |
//! | [`trace`] | what happened, as data |
//! | `table` | values by their keys |
//! | `touched` | where something has happened |
//! | `stall` | a node that is stopped in the midst of a frame |
//! | [`sim`] | nodes, links, and the heap of events |
//!
//! Not here: what software does ([`crate::load`]), and what must hold ([`crate::check`]).

pub(crate) mod alarms;
pub mod beside;
mod burst;
pub mod clock;
pub mod counter;
mod disk;
pub mod frame;
pub mod link;
pub mod mishap;
pub mod model_aead;
pub mod node;
pub mod queue;
pub mod sim;
mod stall;
pub mod switch;
mod table;
mod touched;
pub mod trace;
