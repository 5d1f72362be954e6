//! The contract of channels, of all kinds, between two hosts over UDP.

use rma_tests::channels::{self, World};

#[test]
fn messages_of_all_lengths_come_whole_once_and_in_order() {
    channels::messages_of_all_lengths_come_whole_once_and_in_order(World::over_udp());
}

#[test]
fn an_invalid_message_is_refused() {
    channels::an_invalid_message_is_refused(World::over_udp());
}

#[test]
fn messages_wrap_at_every_offset() {
    channels::messages_wrap_at_every_offset(World::over_udp());
}

#[test]
fn a_receiver_that_is_slow_or_keeps_messages_loses_none() {
    channels::a_receiver_that_is_slow_or_keeps_messages_loses_none(World::over_udp());
}

#[test]
fn a_channel_that_is_full_says_so_and_goes_on() {
    channels::a_channel_that_is_full_says_so_and_goes_on(World::over_udp());
}
