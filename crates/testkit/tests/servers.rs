//! Tests of the servers: real clients pass messages through them.

use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use futures_util::StreamExt;
use shoal_testkit::nats::{Access, Cluster, Operator, Options, Server, Tls};

/// The longest wait for a message, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes at one client until another receives it, because an interest takes a moment to spread between servers.
async fn passes_a_message(from: &Client, to: &Client) {
    let mut subscriber = to.subscribe("test.subject").await.expect("the client is connected");
    to.flush().await.expect("the client is connected");
    let publish = async {
        loop {
            from.publish("test.subject", "hello".into()).await.expect("the client is connected");
            from.flush().await.expect("the client is connected");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        message = subscriber.next() => assert_eq!(message.expect("it stays subscribed").payload, "hello"),
        () = publish => {}
        () = tokio::time::sleep(PATIENCE) => panic!("the message was lost"),
    }
}

async fn connect(server: &Server, options: ConnectOptions) -> Client {
    options.connect(server.url()).await.expect("the server accepts the client")
}

async fn is_refused(server: &Server, options: ConnectOptions) -> bool {
    options.connect(server.url()).await.is_err()
}

#[tokio::test]
async fn a_cluster_of_three_passes_messages_between_all_servers() {
    let cluster = Cluster::start(&Options::default()).expect("the servers start");
    let mut clients = Vec::new();
    for server in &cluster.servers {
        clients.push(connect(server, ConnectOptions::new()).await);
    }
    for from in &clients {
        for to in &clients {
            passes_a_message(from, to).await;
        }
    }
}

#[tokio::test]
async fn a_cluster_of_three_elects_a_leader_of_jetstream() {
    let cluster = Cluster::start(&Options::default()).expect("the servers start");
    let client = connect(&cluster.servers[0], ConnectOptions::new()).await;
    let has_jetstream = async {
        loop {
            match client.request("$JS.API.INFO", "".into()).await {
                Ok(reply) if !String::from_utf8_lossy(&reply.payload).contains("\"error\"") => break,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, has_jetstream).await.expect("the servers elect a leader");
}

#[tokio::test]
async fn a_server_that_was_killed_comes_back_on_its_port() {
    let mut cluster = Cluster::start(&Options::default()).expect("the servers start");
    let url = cluster.servers[1].url();
    cluster.servers[1].kill();
    assert!(async_nats::connect(&url).await.is_err(), "nothing listens there");
    cluster.wait_until_complete().expect("the other two know that it is gone");
    cluster.servers[1].restart().expect("its ports are free");
    cluster.wait_until_complete().expect("all three know each other again");
    let [from, to] =
        [&cluster.servers[1], &cluster.servers[0]].map(|server| connect(server, ConnectOptions::new()));
    passes_a_message(&from.await, &to.await).await;
}

#[tokio::test]
async fn a_password_a_token_or_a_key_is_needed_if_the_server_asks_for_it() {
    let access = Access::User { user: "shoal".to_owned(), password: "secret".to_owned() };
    let server = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
    let with = |password: &str| ConnectOptions::with_user_and_password("shoal".into(), password.into());
    connect(&server, with("secret")).await;
    assert!(is_refused(&server, with("wrong")).await);

    let access = Access::Token("a-token".to_owned());
    let server = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
    connect(&server, ConnectOptions::with_token("a-token".into())).await;
    assert!(is_refused(&server, ConnectOptions::with_token("another".into())).await);

    // The pair of the NATS documentation.
    let access = Access::NKey("UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4".to_owned());
    let server = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    connect(&server, ConnectOptions::with_nkey(seed.into())).await;
    assert!(is_refused(&server, ConnectOptions::new()).await);
}

#[tokio::test]
async fn credentials_of_a_user_are_accepted_for_its_subjects() {
    let operator = Operator::create().expect("the keys are made");
    let access = Access::Credentials(operator.clone());
    let server = Server::start(&Options { access, ..Options::default() }).expect("the server starts");
    let with =
        |credentials: &str| ConnectOptions::with_credentials(credentials).expect("they are well-formed");
    let credentials = operator.credentials("test.>").expect("the keys are made");
    let [from, to] = [with(&credentials), with(&credentials)].map(|options| connect(&server, options));
    passes_a_message(&from.await, &to.await).await;
    let stranger =
        Operator::create().and_then(|other| other.credentials("test.>")).expect("the keys are made");
    assert!(is_refused(&server, with(&stranger)).await);
    assert!(is_refused(&server, ConnectOptions::new()).await);
}

#[tokio::test]
async fn tls_is_served_with_a_certificate_of_a_private_authority() {
    let mut tls = Tls::create().expect("there is room for files");
    tls.verifies_clients = true;
    let options = Options { access: Access::Open, tls: Some(tls.clone()), ..Options::default() };
    let server = Server::start(&options).expect("the server starts");
    let trusting = || ConnectOptions::new().add_root_certificates(tls.authority());
    let [certificate, key] = tls.client();
    connect(&server, trusting().add_client_certificate(certificate, key)).await;
    assert!(is_refused(&server, trusting()).await, "the client has no certificate");
    assert!(is_refused(&server, ConnectOptions::new()).await, "the client does not know the authority");
}

#[tokio::test]
async fn a_leaf_node_passes_messages_to_its_hub() {
    let access = Access::User { user: "shoal".to_owned(), password: "secret".to_owned() };
    let options = Options { access, ..Options::default() };
    let hub = Server::start(&options).expect("the server starts");
    let leaf = Server::start_leaf(&hub, &options).expect("the leaf node starts");
    let client = ConnectOptions::with_user_and_password("shoal".into(), "secret".into());
    let [at_hub, at_leaf] = [connect(&hub, client).await, connect(&leaf, ConnectOptions::new()).await];
    passes_a_message(&at_hub, &at_leaf).await;
    passes_a_message(&at_leaf, &at_hub).await;
}
