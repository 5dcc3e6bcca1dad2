//! Tokens of all kinds, as an issuer or an attacker makes them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where, and that is enough")]

use std::sync::LazyLock;

use serde_json::{Value, json};
use shoal_access::token::{Claims, KeySet, KeySetError, Rules, TOKEN_BYTES_MAX, TokenError, Verifier};
use shoal_base::InfoHash;
use shoal_testkit::tokens::{Issuer, encode, hs256, jwks, message, unsigned};

const NOW_S: u64 = 1_800_000_000;

/// One issuer for each algorithm.
static ISSUERS: LazyLock<[Issuer; 3]> =
    LazyLock::new(|| [Issuer::rs256("rsa"), Issuer::es256("ec"), Issuer::ed25519("ed")]);

fn verifier(keys: &[Value], rules: Rules) -> Verifier {
    Verifier::new(KeySet::parse(jwks(keys).as_bytes()).unwrap(), rules)
}

fn keys() -> Vec<Value> {
    ISSUERS.iter().map(Issuer::jwk).collect()
}

/// Returns a verifier with the keys of all issuers and no rules.
fn plain() -> Verifier {
    verifier(&keys(), Rules::default())
}

fn check(verifier: &Verifier, token: &str) -> Result<Claims, TokenError> {
    verifier.read(token.as_bytes(), NOW_S)?.verify()
}

fn claims() -> Value {
    json!({ "exp": NOW_S + 60 })
}

/// Returns the outcome of claims, with rules.
fn outcome(rules: &Rules, claims: &Value) -> Result<Claims, TokenError> {
    let [.., ed] = &*ISSUERS;
    check(&verifier(&keys(), rules.clone()), &ed.token(claims))
}

#[test]
fn each_algorithm_is_verified_by_its_key() {
    let verifier = plain();
    for issuer in &*ISSUERS {
        let claims = check(&verifier, &issuer.token(&claims())).unwrap();
        assert_eq!((claims.not_before_s, claims.expires_s, claims.torrents), (0, NOW_S + 60, None));
        let without_id = json!({ "alg": issuer.algorithm() });
        assert!(check(&verifier, &issuer.token_with_header(&without_id, &self::claims())).is_ok());
    }
}

#[test]
fn a_signature_of_another_key_or_another_text_is_refused() {
    let verifier = plain();
    for issuer in &*ISSUERS {
        let header = json!({ "alg": issuer.algorithm() });
        let good = issuer.token(&claims());
        let (signed, signature) = good.rsplit_once('.').unwrap();
        let other = message(&header, &json!({ "exp": NOW_S + 61 }));
        let stranger = match issuer.algorithm() {
            "RS256" => Issuer::rs256("rsa"),
            "ES256" => Issuer::es256("ec"),
            _ => Issuer::ed25519("ed"),
        };
        for forged in [
            format!("{other}.{signature}"),
            stranger.token(&claims()),
            format!("{signed}."),
            format!("{signed}.{}", &signature[..signature.len() - 2]),
            format!("{signed}.{}", encode(&[0; 64])),
            format!("{signed}.{}", encode(&[0; 256])),
            format!("{signed}.!!"),
        ] {
            assert_eq!(check(&verifier, &forged), Err(TokenError::BadSignature), "{forged}");
        }
    }
}

#[test]
fn only_the_three_algorithms_are_accepted() {
    let verifier = plain();
    assert_eq!(check(&verifier, &unsigned(&claims())), Err(TokenError::Unsupported));
    for algorithm in
        ["none", "NONE", "", "HS256", "HS384", "RS384", "RS512", "PS256", "ES384", "ES256K", "rs256"]
    {
        for issuer in &*ISSUERS {
            let token = issuer.token_with_header(&json!({ "alg": algorithm }), &claims());
            assert_eq!(check(&verifier, &token), Err(TokenError::Unsupported), "{algorithm}");
        }
    }
}

#[test]
fn a_public_key_is_no_secret_for_hs256() {
    let verifier = plain();
    for jwk in keys() {
        for part in ["n", "x"] {
            let Some(text) = jwk[part].as_str() else { continue };
            for secret in [text.as_bytes().to_vec(), jwk.to_string().into_bytes()] {
                let header = json!({ "alg": "HS256", "kid": jwk["kid"] });
                assert_eq!(
                    check(&verifier, &hs256(&secret, &header, &claims())),
                    Err(TokenError::Unsupported)
                );
                let header = json!({ "alg": jwk["alg"], "kid": jwk["kid"] });
                assert_eq!(
                    check(&verifier, &hs256(&secret, &header, &claims())),
                    Err(TokenError::BadSignature)
                );
            }
        }
    }
}

#[test]
fn a_key_is_used_for_its_own_algorithm_only() {
    let verifier = plain();
    for issuer in &*ISSUERS {
        for other in ISSUERS.iter().filter(|other| other.algorithm() != issuer.algorithm()) {
            let header = json!({ "alg": other.algorithm(), "kid": issuer.jwk()["kid"] });
            let token = issuer.token_with_header(&header, &claims());
            assert_eq!(check(&verifier, &token), Err(TokenError::UnknownKey));
        }
    }
}

#[test]
fn without_a_key_id_there_must_be_one_fitting_key() {
    let [one, other] = [Issuer::ed25519("one"), Issuer::ed25519("other")];
    let token = one.token_with_header(&json!({ "alg": "EdDSA" }), &claims());
    let alone = verifier(&[one.jwk(), ISSUERS[0].jwk()], Rules::default());
    assert!(check(&alone, &token).is_ok());
    let both = verifier(&[one.jwk(), other.jwk()], Rules::default());
    assert_eq!(check(&both, &token), Err(TokenError::UnknownKey));
    assert!(check(&both, &one.token(&claims())).is_ok());
    let unknown = json!({ "alg": "EdDSA", "kid": "third" });
    assert_eq!(check(&both, &one.token_with_header(&unknown, &claims())), Err(TokenError::UnknownKey));
}

#[test]
fn extensions_that_must_be_understood_are_refused() {
    let [.., ed] = &*ISSUERS;
    for crit in [json!(["b64"]), json!([]), json!("exp")] {
        let header = json!({ "alg": "EdDSA", "crit": crit, "b64": false });
        assert_eq!(check(&plain(), &ed.token_with_header(&header, &claims())), Err(TokenError::Unsupported));
    }
    let header = json!({ "alg": "EdDSA", "typ": "at+jwt", "jku": "http://attacker.example/", "jwk": {} });
    assert!(check(&plain(), &ed.token_with_header(&header, &claims())).is_ok());
}

#[test]
fn anything_else_is_malformed() {
    let [.., ed] = &*ISSUERS;
    let good = ed.token(&claims());
    let [header, payload, signature]: [&str; 3] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let raw = |header: &str, payload: &str| {
        format!("{}.{}.{signature}", encode(header.as_bytes()), encode(payload.as_bytes()))
    };
    for malformed in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        format!("{header}.{payload}"),
        format!("{good}.{payload}"),
        format!("{header}.{payload}.{payload}.{payload}.{signature}"),
        format!("{header}=.{payload}.{signature}"),
        format!("{header}.{payload}.{signature}").replace('.', ".."),
        raw("", "{}"),
        raw("{}", "{}"),
        raw("[]", "{}"),
        raw(r#"{"alg":"EdDSA","alg":"EdDSA"}"#, r#"{"exp":9999999999}"#),
        raw(r#"{"alg":1}"#, r#"{"exp":9999999999}"#),
        raw(r#"{"alg":"EdDSA","kid":1}"#, r#"{"exp":9999999999}"#),
        raw(r#"{"alg":"EdDSA","crit":null}"#, r#"{"exp":9999999999}"#).replace("==", ""),
        raw(r#"{"alg":"EdDSA"}"#, r#"{"exp":9999999999,"exp":1}"#),
        raw(r#"{"alg":"EdDSA"}"#, r#"{"exp":9999999999} {}"#),
        raw(r#"{"alg":"EdDSA"}"#, "null"),
        raw(r#"{"alg":"EdDSA"}"#, &"[".repeat(500)),
        "a".repeat(TOKEN_BYTES_MAX + 1),
    ] {
        let refused = check(&plain(), &malformed).unwrap_err();
        let expected = if malformed.starts_with(&encode(br#"{"alg":"EdDSA","crit":null}"#)) {
            TokenError::Unsupported
        } else {
            TokenError::Malformed
        };
        assert_eq!(refused, expected, "{malformed}");
    }
    assert_eq!(plain().read(b"\xff.\xff.\xff", NOW_S).unwrap_err(), TokenError::Malformed);
}

#[test]
fn a_token_is_valid_from_its_beginning_to_its_end_and_a_leeway() {
    let rules = Rules { leeway_s: 30, ..Rules::default() };
    for (claims, expected) in [
        (json!({ "exp": NOW_S + 1 }), None),
        (json!({ "exp": NOW_S - 29 }), None),
        (json!({ "exp": NOW_S - 30 }), Some(TokenError::Expired)),
        (json!({ "exp": 0 }), Some(TokenError::Expired)),
        (json!({ "exp": -5 }), Some(TokenError::Expired)),
        (json!({ "exp": 1e300 }), None),
        (json!({ "exp": NOW_S as f64 + 0.5 }), None),
        (json!({ "exp": u64::MAX }), None),
        (json!({ "exp": NOW_S + 1, "nbf": NOW_S + 30 }), None),
        (json!({ "exp": NOW_S + 90, "nbf": NOW_S + 31 }), Some(TokenError::NotYetValid)),
        (json!({ "exp": NOW_S - 90, "nbf": NOW_S + 31 }), Some(TokenError::Expired)),
        (json!({ "exp": NOW_S + 1, "nbf": -1 }), None),
        (json!({}), Some(TokenError::Malformed)),
        (json!({ "exp": null }), Some(TokenError::Malformed)),
        (json!({ "exp": "1900000000" }), Some(TokenError::Malformed)),
        (json!({ "exp": NOW_S + 1, "nbf": null }), Some(TokenError::Malformed)),
        (json!({ "exp": NOW_S + 1, "nbf": [1] }), Some(TokenError::Malformed)),
    ] {
        assert_eq!(outcome(&rules, &claims).err(), expected, "{claims}");
    }
}

#[test]
fn issuer_and_audience_are_checked() {
    let rules = |issuer: Option<&str>, audience: Option<&str>| Rules {
        issuer: issuer.map(str::to_owned),
        audience: audience.map(str::to_owned),
        leeway_s: 0,
    };
    let with = |mut more: Value| {
        more["exp"] = json!(NOW_S + 1);
        more
    };
    let (site, tracker) = (rules(Some("site"), None), rules(None, Some("tracker")));
    for (rules, claims, expected) in [
        (&site, json!({ "iss": "site" }), None),
        (&site, json!({ "iss": "s\u{69}te" }), None),
        (&site, json!({ "iss": "sites" }), Some(TokenError::WrongIssuer)),
        (&site, json!({}), Some(TokenError::WrongIssuer)),
        (&site, json!({ "iss": null }), Some(TokenError::Malformed)),
        (&site, json!({ "iss": ["site"] }), Some(TokenError::Malformed)),
        (&tracker, json!({ "aud": "tracker" }), None),
        (&tracker, json!({ "aud": ["forum", "tracker"] }), None),
        (&tracker, json!({ "aud": ["forum"] }), Some(TokenError::WrongAudience)),
        (&tracker, json!({ "aud": [] }), Some(TokenError::WrongAudience)),
        (&tracker, json!({}), Some(TokenError::WrongAudience)),
        (&tracker, json!({ "aud": null }), Some(TokenError::Malformed)),
        (&tracker, json!({ "aud": [1] }), Some(TokenError::Malformed)),
        (&rules(None, None), json!({ "iss": "anyone" }), None),
        (&rules(None, None), json!({ "aud": "other" }), Some(TokenError::WrongAudience)),
    ] {
        assert_eq!(outcome(rules, &with(claims.clone())).err(), expected, "{claims}");
    }
}

#[test]
fn a_token_is_bound_to_the_torrents_that_it_names() {
    let hash = |byte| InfoHash([byte; 20]);
    let bound =
        |infohash: Value| outcome(&Rules::default(), &json!({ "exp": NOW_S + 1, "infohash": infohash }));
    let [one, two] = ["01".repeat(20), "02".repeat(20)];
    let all = outcome(&Rules::default(), &claims()).unwrap();
    assert!(all.permit(&hash(1)) && all.permit(&hash(9)));
    for (infohash, permitted) in [
        (json!(one), vec![1]),
        (json!([one, two.to_uppercase()]), vec![1, 2]),
        (json!(["AEBAGBAFAYDQQCIKBMGA2DQPCAIREEYU"]), vec![]),
        (json!([format!("{two}{}", "ff".repeat(12))]), vec![2]),
        (json!([]), vec![]),
    ] {
        let claims = bound(infohash.clone()).unwrap();
        for byte in [1, 2, 3] {
            assert_eq!(claims.permit(&hash(byte)), permitted.contains(&byte), "{infohash}");
        }
    }
    let base32 = bound(json!("AEBAGBAFAYDQQCIKBMGA2DQPCAIREEYU")).unwrap();
    assert!(base32.permit(&InfoHash(core::array::from_fn(|at| u8::try_from(at + 1).unwrap()))));
    for infohash in [json!(null), json!(""), json!("zz"), json!([one, "01"]), json!(1), json!({ "a": 1 })] {
        assert_eq!(bound(infohash.clone()).err(), Some(TokenError::Malformed), "{infohash}");
    }
}

#[test]
fn keys_that_do_not_fit_are_left_out_with_the_reason() {
    let [rsa, ec, ed] = &*ISSUERS;
    let changed = |issuer: &Issuer, name: &str, value: Value| {
        let mut jwk = issuer.jwk();
        jwk[name] = value;
        jwk
    };
    let short = encode(&[0xff; 128]);
    for (key, reason) in [
        (json!({ "kty": "oct", "k": "c2VjcmV0" }), "the type \"oct\" are not accepted"),
        (changed(ec, "crv", json!("P-384")), "\"EC\" \"P-384\" are not accepted"),
        (changed(ed, "crv", json!("X25519")), "\"OKP\" \"X25519\" are not accepted"),
        (changed(rsa, "alg", json!("HS256")), "\"alg\" is \"HS256\""),
        (changed(rsa, "alg", json!("PS256")), "accepted for RS256 only"),
        (changed(ed, "alg", json!("ES256")), "accepted for EdDSA only"),
        (changed(ec, "use", json!("enc")), "\"use\" is \"enc\""),
        (changed(ec, "key_ops", json!(["sign"])), "do not contain \"verify\""),
        (changed(ed, "d", json!("c2VjcmV0")), "a private part"),
        (changed(rsa, "n", json!(null)), "it has no \"n\""),
        (changed(rsa, "n", json!("a+b=")), "not base64url"),
        (changed(rsa, "n", json!(short)), "1024 bits"),
        (changed(rsa, "e", json!("AQ")), "exponent"),
        (changed(ec, "y", json!("AQ")), "\"y\" has 1 bytes"),
        (changed(ed, "x", json!("AQ")), "\"x\" has 1 bytes"),
        (changed(ed, "kid", json!("x".repeat(300))), "\"kid\" has more"),
        (changed(ed, "kid", json!(7)), "not a JWK"),
        (json!(7), "not a JWK"),
    ] {
        let alone = KeySet::parse(jwks(std::slice::from_ref(&key)).as_bytes()).unwrap_err();
        let KeySetError::NoneUsable(reasons) = &alone else { panic!("{alone}") };
        assert!(reasons[0].contains(reason), "{key}: {}", reasons[0]);
        let both = KeySet::parse(jwks(&[key, ec.jwk()]).as_bytes()).unwrap();
        assert_eq!((both.len(), both.unusable().len()), (1, 1));
    }
    let twice = KeySet::parse(jwks(&[ec.jwk(), Issuer::es256("ec").jwk()]).as_bytes()).unwrap();
    assert_eq!((twice.len(), twice.unusable().len()), (1, 1));
    let minimal = changed(&ISSUERS[2], "alg", json!(null));
    assert_eq!(KeySet::parse(jwks(&[minimal]).as_bytes()).unwrap().len(), 1);
}

#[test]
fn what_is_no_set_is_an_error() {
    let many: Vec<Value> = (0..65).map(|_| json!({})).collect();
    for (text, expected) in [
        (String::new(), KeySetError::NotASet),
        ("garbage".to_owned(), KeySetError::NotASet),
        ("<html>".to_owned(), KeySetError::NotASet),
        ("[]".to_owned(), KeySetError::NotASet),
        (r#"{"keys":{}}"#.to_owned(), KeySetError::NotASet),
        (r#"{"keys":[]}"#.to_owned(), KeySetError::NoneUsable(vec![])),
        (jwks(&many), KeySetError::TooManyKeys(65)),
        (" ".repeat(1 << 20), KeySetError::TooLarge),
        (jwks(&keys())[..100].to_owned(), KeySetError::NotASet),
    ] {
        assert_eq!(KeySet::parse(text.as_bytes()).unwrap_err(), expected);
    }
}

#[test]
fn keys_keep_their_numbers_and_new_ones_get_others() {
    let [a, b, c] = [Issuer::ed25519("a"), Issuer::ed25519("b"), Issuer::ed25519("a")];
    let set = |keys: &[Value]| KeySet::parse(jwks(keys).as_bytes()).unwrap();
    let mut last = Default::default();
    let number = |set: &KeySet, issuer: &Issuer| {
        check(&Verifier::new(set.clone(), Rules::default()), &issuer.token(&claims())).unwrap().key
    };
    let first = set(&[a.jwk(), b.jwk()]).following(None, &mut last);
    let second = set(&[b.jwk(), c.jwk()]).following(Some(&first), &mut last);
    assert_eq!(number(&first, &b), number(&second, &b));
    let (old, new) = (number(&first, &a), number(&second, &c));
    assert!(old != new && !second.has(old) && second.has(new) && first.has(old));
    // A key that comes back is another one: its tokens were refused in between.
    let third = set(&[a.jwk()]).following(Some(&second), &mut last);
    assert!(![number(&first, &b), old, new].contains(&number(&third, &a)));
}
