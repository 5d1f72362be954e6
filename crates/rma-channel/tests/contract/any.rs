//! Channels of any kind, opened by one call: what a kind cannot do, and errors that name it.

use rma_channel::{AnyEnd, ChannelConfig, Kind, KindError, OpenError};
use rma_contract::{hosts::Hosts as _, simulated::World};
use rma_sim::{hosts::options::NetworkOptions, net::frame::NodeId};

#[test]
fn a_kind_opens_in_one_way_and_names_itself_where_it_cannot_do_what_is_asked() {
    let config = ChannelConfig::new(8, 4);
    let nodes = [NodeId(0), NodeId(1)];
    for kind in Kind::ALL {
        let mut world = World::new(NetworkOptions::exact(3));
        let [home, guest, third] = [0, 1, 2].map(|node| world.peer(NodeId(node)));
        let half = kind.open(&*world.gate(nodes[0]), &config, guest).unwrap();

        let other = Kind::ALL[kind as usize % Kind::ALL.len()];
        let refused = other.join(&*world.gate(nodes[1]), &config, home, half.terms()).unwrap_err();
        assert!(matches!(refused.why, OpenError::Terms(_)), "{kind} is no {refused}");
        assert!(refused.to_string().starts_with(other.name()), "{refused}");
        let named = config.with(|it| it.name = 9);
        let refused = kind.join(&*world.gate(nodes[1]), &named, home, half.terms()).unwrap_err();
        assert!(matches!(refused.why, OpenError::Terms(_)), "{kind} of another name: {refused}");
        assert_eq!(world.kept, 0, "{kind}: what was refused registers nothing");

        let into = kind.join_into(&*world.gate(nodes[1]), &config, home, half.terms());
        let reads_nothing = matches!(into, Err(KindError { why: OpenError::ReadsNothing, .. }));
        assert_ne!(reads_nothing, kind.ours().is_read(), "{kind}: {into:?}");

        let joined = kind.join(&*world.gate(nodes[1]), &config, home, half.terms());
        let (joined, answer) = joined.unwrap();
        let end = half.connect(&answer).unwrap();
        let one_more = match (end, joined) {
            (AnyEnd::Sender(mut home), AnyEnd::Receiver(_)) => {
                home.admit(&*world.gate(nodes[0]), third)
            }
            (AnyEnd::Receiver(mut home), AnyEnd::Sender(_)) => {
                home.admit(&*world.gate(nodes[0]), third)
            }
            ends => panic!("{ends:?} are both of one side"),
        };
        let is_for_many = kind.ours().is_shared() || kind.ours().is_read();
        assert_eq!(one_more.is_ok(), is_for_many, "{kind}: {one_more:?}");
        if let Err(error) = one_more {
            assert!(matches!(error.why, OpenError::OnePeer { peer } if peer == third), "{error}");
            assert!(error.to_string().starts_with(kind.name()), "{error}");
        }
    }
}
