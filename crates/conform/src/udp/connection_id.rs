//! Connection ids: which clients may use them, and for how long (BEP 15, "UDP connections / spoofing").

use std::thread;

use super::client::{Client, Datagram};
use super::describe;
use super::packet::{ANNOUNCE, PROTOCOL_ID, SCRAPE, header, scrape, u32_at};
use crate::case::{Case, Checked, ensure};
use crate::context::Context;
use crate::peer::Announce;
use crate::rules::Client as _;

const SOURCE: &str = "BEP 15, \"UDP connections / spoofing\"";

pub(super) const CASES: &[Case] = &[
    Case::must(
        "udp-announce-needs-connection-id",
        SOURCE,
        "An announce whose connection id was not handed out gets no announce reply, and its peer joins no swarm.",
        announce_needs_it,
    ),
    Case::must(
        "udp-scrape-needs-connection-id",
        SOURCE,
        "A scrape whose connection id was not handed out gets no scrape reply.",
        scrape_needs_it,
    ),
    Case::should(
        "udp-wrong-connection-id-is-not-amplified",
        SOURCE,
        "The response to a wrong connection id is no larger than the request, whose source may be forged.",
        wrong_one_is_not_amplified,
    ),
    Case::must(
        "udp-connection-id-of-another-address-is-refused",
        SOURCE,
        "A connection id that was sent to one address is refused from any other, because it proves nothing about it.",
        that_of_another_address_is_refused,
    ),
    Case::must(
        "udp-connection-id-serves-many-requests",
        SOURCE,
        "One connection id can be used for several requests.",
        serves_many_requests,
    ),
    Case::should(
        "udp-connection-id-serves-another-port",
        "practice: NATs change the port between two requests",
        "A connection id is bound to the address of the client, not to its port.",
        serves_another_port,
    ),
    Case::must(
        "udp-connection-id-lives-for-seconds",
        SOURCE,
        "A connection id is still accepted some seconds after it was received.",
        |context| lives_for(context, 1, 30),
    ),
    Case::must(
        "udp-connection-id-lives-for-a-minute",
        SOURCE,
        "A client can use a connection id until one minute after it has received it.",
        |context| lives_for(context, 29, 30),
    )
    .slow(),
    Case::should(
        "udp-connection-id-lives-for-two-minutes",
        SOURCE,
        "Trackers should accept a connection id until two minutes after it has been sent.",
        |context| lives_for(context, 59, 30),
    )
    .slow(),
];

fn wrong_ids(context: &Context<'_>, good: u64) -> [u64; 8] {
    let random = u64::from(context.random()) << 32 | u64::from(context.random());
    [0, 1, u64::MAX, PROTOCOL_ID, good ^ 1, good ^ (1 << 31), good ^ (1 << 63), random]
}

fn announce_needs_it(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    let hash = context.hash(0);
    for id in wrong_ids(context, client.connection_id()?) {
        let packet = Announce::seeder(hash, 1001).packet(id, context.random());
        no_reply_of(ANNOUNCE, &client.send_and_collect(&[packet])?, context)?;
    }
    let counts = client.scrape_one(hash)?;
    ensure(counts.seeders == 0, "no peer in the swarm", format!("{} seeders", counts.seeders))
}

fn scrape_needs_it(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for id in wrong_ids(context, client.connection_id()?) {
        let packet = scrape(id, context.random(), &[context.hash(0)]);
        no_reply_of(SCRAPE, &client.send_and_collect(&[packet])?, context)?;
    }
    Ok(())
}

fn no_reply_of(action: u32, seen: &[Datagram], context: &Context<'_>) -> Checked {
    let Some(reply) = seen.iter().find(|datagram| u32_at(&datagram.bytes, 0) == Some(action)) else {
        return Ok(());
    };
    ensure(false, "silence or an error packet", describe::reply(&reply.bytes, context.peer_bytes()))
}

fn wrong_one_is_not_amplified(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for id in wrong_ids(context, client.connection_id()?) {
        let packets = [
            Announce::leecher(context.hash(0), 1001).packet(id, context.random()),
            scrape(id, context.random(), &[context.hash(0)]),
            header(id, 77, context.random()),
        ];
        for packet in packets {
            let seen = client.send_and_collect(std::slice::from_ref(&packet))?;
            let bytes: usize = seen.iter().map(|datagram| datagram.bytes.len()).sum();
            ensure(
                bytes <= packet.len(),
                format!("at most {} bytes in reply to as many", packet.len()),
                format!("{bytes} bytes"),
            )?;
        }
    }
    Ok(())
}

fn that_of_another_address_is_refused(context: &Context<'_>) -> Checked {
    let owner = Client::at(context, context.source(0)?)?;
    let thief = Client::at(context, context.source(1)?)?;
    let id = owner.connection_id()?;
    owner.announce(&Announce::leecher(context.hash(0), 1001))?;
    let packets = [
        Announce::leecher(context.hash(0), 1002).packet(id, context.random()),
        scrape(id, context.random(), &[context.hash(0)]),
    ];
    let seen = thief.send_and_collect(&packets)?;
    no_reply_of(ANNOUNCE, &seen, context)?;
    no_reply_of(SCRAPE, &seen, context)
}

fn serves_many_requests(context: &Context<'_>) -> Checked {
    let client = Client::new(context)?;
    for _ in 0..5 {
        client.announce(&Announce::leecher(context.hash(0), 1001))?;
        client.scrape_one(context.hash(0))?;
    }
    Ok(())
}

fn serves_another_port(context: &Context<'_>) -> Checked {
    let (client, neighbour) = (Client::new(context)?, Client::new(context)?);
    let id = client.connection_id()?;
    let packet = Announce::leecher(context.hash(0), 1001).packet(id, context.random());
    let reply = neighbour.request(&packet)?;
    neighbour.read_announced(&reply).map(|_| ())
}

/// Waits for a fraction of a minute, slightly less than the limit of the BEP, and uses the id once more.
fn lives_for(context: &Context<'_>, numerator: u32, denominator: u32) -> Checked {
    let client = Client::new(context)?;
    client.connection_id()?;
    thread::sleep(context.target.timing.minute * numerator / denominator);
    client.announce(&Announce::leecher(context.hash(0), 1001)).map(|_| ())
}
