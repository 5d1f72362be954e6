//! The contract of channels, of all kinds, between two hosts over AF_XDP.

use rma_tests::{
    channels::{self, World},
    hosts::Setup,
};
use rma_xdp::device::xdp::Mode;

fn in_both_modes(contract: fn(World)) {
    for mode in [Mode::Native, Mode::Generic] {
        contract(World::in_lab(&Setup { mode, ..Setup::default() }));
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn messages_of_all_lengths_come_whole_once_and_in_order() {
    in_both_modes(channels::messages_of_all_lengths_come_whole_once_and_in_order);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_invalid_message_is_refused() {
    in_both_modes(channels::an_invalid_message_is_refused);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn messages_wrap_at_every_offset() {
    in_both_modes(channels::messages_wrap_at_every_offset);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_receiver_that_is_slow_or_keeps_messages_loses_none() {
    in_both_modes(channels::a_receiver_that_is_slow_or_keeps_messages_loses_none);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_channel_that_is_full_says_so_and_goes_on() {
    in_both_modes(channels::a_channel_that_is_full_says_so_and_goes_on);
}
