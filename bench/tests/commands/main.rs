//! The program as its users run it: processes on loopback and on veth pairs.

mod compared;
mod doctor;
mod first_use;
mod generated;
mod processes;
mod saved;
