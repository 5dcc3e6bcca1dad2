//! An installation with an operator and accounts, as `nsc` sets it up, whose users have credentials.

use anyhow::{Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

/// An operator with an account for the system and one for users.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The token of the operator, which it has signed itself.
    token: String,
    system: Account,
    users: Account,
    /// The seed of the key of the account for users.
    seed: String,
}

#[derive(Clone, Debug)]
struct Account {
    public_key: String,
    token: String,
}

impl Operator {
    /// Creates the keys and the tokens.
    ///
    /// # Errors
    /// Returns an error if the library of the keys fails.
    pub fn create() -> Result<Self> {
        let operator = KeyPair::new_operator();
        let token = sign(
            "operator",
            &operator.public_key(),
            &operator,
            &json!({ "type": "operator", "version": 2 }),
        )?;
        let account = |name: &str, key: &KeyPair| -> Result<Account> {
            let limits = json!({
                "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            });
            let content = json!({ "type": "account", "version": 2, "limits": limits });
            let public_key = key.public_key();
            Ok(Account { token: sign(name, &public_key, &operator, &content)?, public_key })
        };
        let key = KeyPair::new_account();
        let seed = key.seed().map_err(|error| anyhow!("{error}"))?;
        Ok(Self {
            token,
            system: account("system", &KeyPair::new_account())?,
            users: account("users", &key)?,
            seed,
        })
    }

    /// Returns the credentials of a new user, as `nsc generate creds` writes them. The user may publish and subscribe to the
    /// subjects that match `subjects`.
    ///
    /// # Errors
    /// Returns an error if the library of the keys fails.
    pub fn credentials(&self, subjects: &str) -> Result<String> {
        let user = KeyPair::new_user();
        let account = KeyPair::from_seed(&self.seed).map_err(|error| anyhow!("{error}"))?;
        let allow = json!({ "allow": [subjects] });
        let content = json!({
            "type": "user", "version": 2, "pub": allow, "sub": allow, "subs": -1, "data": -1, "payload": -1,
        });
        let token = sign("tracker", &user.public_key(), &account, &content)?;
        let seed = user.seed().map_err(|error| anyhow!("{error}"))?;
        Ok(format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             ************************* IMPORTANT *************************\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        ))
    }

    pub(crate) fn text(&self) -> String {
        let accounts =
            [&self.system, &self.users].map(|account| format!("{}: {}", account.public_key, account.token));
        format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload {{\n{}\n}}\n",
            self.token,
            self.system.public_key,
            accounts.join("\n")
        )
    }
}

/// Returns a token about the key `subject` that `issuer` has signed.
fn sign(name: &str, subject: &str, issuer: &KeyPair, content: &Value) -> Result<String> {
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let claims = json!({
        "jti": subject, "iat": 1_700_000_000, "iss": issuer.public_key(), "name": name, "sub": subject, "nats": content,
    });
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{claims}");
    let signature = issuer.sign(signed.as_bytes()).map_err(|error| anyhow!("{error}"))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
