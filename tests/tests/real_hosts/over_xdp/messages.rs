//! Receive queues, atomics and ordered writes over AF_XDP, and between both kinds of host.

use rma_tests::{
    hosts::{Hosts, Setup},
    messages::everything,
};
use rma_xdp::device::xdp::Mode;

fn run(setup: &Setup) {
    everything(|| Hosts::in_lab(setup));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn messages_and_atomics_are_what_they_say_in_native_mode() {
    run(&Setup::default());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn messages_and_atomics_are_what_they_say_in_generic_mode_over_ipv6() {
    run(&Setup { mode: Mode::Generic, ipv6: true, ..Setup::default() });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn messages_and_atomics_are_what_they_say_between_xdp_and_udp_hosts() {
    for udp in [(true, false), (false, true)] {
        run(&Setup { udp, ..Setup::default() });
    }
}
