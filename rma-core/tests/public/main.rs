//! The crate as others use it: its wire format, byte by byte, a service beside 1RMA, and a portal
//! whose engine is in another process.

mod portal_in_another_process;
mod second_service;
mod vectors;
